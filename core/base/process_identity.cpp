// SPDX-License-Identifier: Apache-2.0
#include "base/process_identity.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace forebay {
namespace {

constexpr int fields_between_state_and_start = 18;  // in /proc/PID/stat

/// Boot and namespace of pids: in these a pid and a start are one process.
std::string surroundings() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat pids{};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &pids) != 0) return {};
  return boot + " " + std::to_string(pids.st_ino);
}

struct ProcessState {
  bool runs = true;
  std::string start;  ///< in ticks since the boot
};

std::optional<ProcessState> state_of(pid_t process) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
  // The program's name may have spaces and brackets.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  fields >> state;
  std::string field;
  for (int i = 0; i < fields_between_state_and_start; ++i) fields >> field;
  ProcessState found;
  found.runs = state != "Z" && state != "X";
  if (!(fields >> found.start)) return std::nullopt;
  return found;
}

}  // namespace

std::string own_process_identity() {
  const std::string around = surroundings();
  const auto own = state_of(::getpid());
  if (around.empty() || !own) return {};
  return around + " " + std::to_string(::getpid()) + " " + own->start;
}

bool process_has_ended(std::string_view identity) {
  const std::string around = surroundings();
  if (around.empty() || !identity.starts_with(around + " ")) return false;
  identity.remove_prefix(around.size() + 1);
  pid_t process = 0;
  const auto [end, error] = std::from_chars(identity.data(), identity.data() + identity.size(), process);
  if (error != std::errc() || process <= 0 || end == identity.data() + identity.size() || *end != ' ') return false;
  const std::string_view start(end + 1, identity.data() + identity.size());
  // /proc may hide what belongs to others.
  if (::kill(process, 0) != 0 && errno == ESRCH) return true;
  const auto found = state_of(process);
  return found && (!found->runs || found->start != start);
}

}  // namespace forebay
