// SPDX-License-Identifier: Apache-2.0
#include "space/reader_presence.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/log.h"
#include "base/system_error.h"

namespace forebay::server {
namespace {

constexpr ssize_t rank_bytes = 26;  // "%016x %08x\n"

std::optional<std::uint64_t> hexadecimal(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

Result<ReaderPresence> ReaderPresence::open(const std::string& folder) {
  ReaderPresence presence(folder + "/readers");
  if (::mkdir(presence.directory_.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error(errno, "cannot make the directory of readers", presence.directory_);
  return presence;
}

bool ReaderPresence::write_rank(const std::string& path, const GroupRank& rank) {
  const std::string text = fmt::format("{:016x} {:08x}\n", rank.first, rank.second);
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.valid() && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return true;
  const Error error =
      system_error(errno, "after a restart this rank of a reader group counts as lost unless it comes back in time",
                   path)
          .value();
  log::warning("{}", error.message());
  remove(path);
  return false;
}

std::map<ReaderPresence::GroupRank, std::uint64_t> ReaderPresence::ranks() const {
  std::map<GroupRank, std::uint64_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, ignored)) {
    const Descriptor file(::open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    char text[rank_bytes + 1] = {};
    if (!file.valid() || ::read(file.get(), text, rank_bytes) != rank_bytes) continue;
    const auto session = hexadecimal(entry.path().filename().string());
    const auto group = hexadecimal(std::string_view(text, 16));
    const auto rank = hexadecimal(std::string_view(text + 17, 8));
    if (session && group && rank) found.emplace(GroupRank(*group, static_cast<std::uint32_t>(*rank)), *session);
  }
  return found;
}

Result<std::set<std::uint64_t>> ReaderPresence::sessions() const {
  std::set<std::uint64_t> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory_, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (const auto session = hexadecimal(entry->path().filename().string())) found.insert(*session);
  if (error) return system_error(error.value(), "cannot list who reads here", directory_);
  return found;
}

std::string ReaderPresence::path(std::uint64_t session) const {
  return fmt::format("{}/{:016x}", directory_, session);
}

Descriptor ReaderPresence::admit(std::uint64_t session, const std::optional<GroupRank>& rank) const {
  if (rank && !write_rank(path(session), *rank)) return {};
  // Each client gets an open file of its own, and can neither write to it nor take another's lock away.
  Descriptor file(::open(path(session).c_str(), O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return file;
  const Error error =
      system_error(errno, "after a restart a reader's steps will be held until its process ends", path(session))
          .value();
  log::warning("{}", error.message());
  forget(session);
  return {};
}

void ReaderPresence::forget(std::uint64_t session) const {
  remove(path(session));
}

void ReaderPresence::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  const Error error = system_error(errno, "a reader's file stays until the server starts again", path).value();
  log::warning("{}", error.message());
}

ReaderPresence::State ReaderPresence::state(std::uint64_t session) const {
  const Descriptor file(::open(path(session).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return errno == ENOENT ? State::unknown : State::present;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return State::gone;
  return State::present;
}

void ReaderPresence::keep_only(const std::set<std::uint64_t>& sessions) const {
  std::set<std::string> kept;
  for (std::uint64_t session : sessions) kept.insert(path(session));
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, ignored)) {
    if (!kept.contains(entry.path().string())) remove(entry.path().string());
  }
}

ReaderProcess::ReaderProcess(pid_t pid) noexcept
    : descriptor_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))),
      had_ended_(!descriptor_.valid() && errno == ESRCH) {}

bool ReaderProcess::has_ended() const noexcept {
  pollfd end{descriptor_.get(), POLLIN, 0};
  return had_ended_ || (descriptor_.valid() && ::poll(&end, 1, 0) == 1);
}

}  // namespace forebay::server
