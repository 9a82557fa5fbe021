// SPDX-License-Identifier: Apache-2.0
// dw_wlm_cli: the program that Slurm's plugin burst_buffer/datawarp starts. It reads the script with its own
// rights, passes it to the manager over its socket, and prints the answer. All work happens in the manager and
// continues when this process has ended. Lists (pools, show_*) and a job's variables (paths) come from the snapshot
// that the manager replaces, so they can be read while it is down.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <forebay/manager_request.h>

#include "snapshot_file.h"

namespace {

using forebay::ask_manager;
using forebay::HttpAnswer;
using forebay::slurm::file_bytes_max;
using forebay::slurm::joined_items;
using forebay::slurm::part_of_job;
using forebay::slurm::parts_of;
using forebay::slurm::read_file;
using forebay::slurm::Snapshot;

// Slurm holds its locks during job_process, so it goes on without a manager that does not answer soon.
constexpr std::chrono::seconds patience_locked{1};
// Slurm ends the other calls at a time of its own, which the administrator has set.
constexpr std::chrono::hours patience{48};
constexpr std::chrono::seconds silence_max{10};
constexpr std::chrono::milliseconds retry_interval{200};

/// Prints what Slurm shows a person: one stream, for Slurm reads both as one.
[[noreturn]] void fail(const std::string& text) {
  std::fputs(("forebay: " + text + "\n").c_str(), stdout);
  std::exit(1);
}

/// Slurm starts this with nearly all signals blocked, SIGTERM among them.
void reset_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

std::string encoded(std::string_view text) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (plain) {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += '%';
      result += digits[byte >> 4];
      result += digits[byte & 15];
    }
  }
  return result;
}

struct Answer {
  int status = 1;
  std::string text;
};

/// The manager's answer to a call; nothing if none came.
std::optional<Answer> asked(const std::string& root, const std::string& request, std::chrono::seconds wait) {
  const std::optional<HttpAnswer> answer = ask_manager(root, request, {.connection = wait, .part = wait});
  if (!answer) return std::nullopt;
  if (const auto status = answer->number("x-forebay-exit-status")) return Answer{*status, answer->body};
  return Answer{1, "forebay: the manager refuses: " + answer->body + "\n"};
}

/// The answer, however long the manager is away. `tells`: a person may read what is printed meanwhile, for Slurm ends a
/// call that takes too long and shows what it has printed.
Answer ask(const std::string& root, const std::string& request, bool tells) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    if (auto answer = asked(root, request, std::chrono::seconds{0})) return *answer;
    const auto waited = std::chrono::steady_clock::now() - begin;
    const std::string trouble = "the manager of " + root + " cannot be reached; start it with `forebay up`";
    if (waited >= patience) fail(trouble);
    if (tells && waited >= silence_max) {
      std::fputs(("forebay: " + trouble + "\n").c_str(), stdout);
      std::fflush(stdout);
      tells = false;
    }
    std::this_thread::sleep_for(retry_interval);
  }
}

void write_path_file(const std::string& path, const std::string& content) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) fail("the path file cannot be made: " + std::string(std::strerror(errno)));
  std::string_view rest = content;
  while (!rest.empty()) {
    const ssize_t count = ::write(descriptor, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("the path file cannot be written: " + std::string(std::strerror(errno)));
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::close(descriptor) != 0) fail("the path file cannot be written: " + std::string(std::strerror(errno)));
}

std::string option(const std::vector<std::string>& arguments, const char* name) {
  for (std::size_t at = 0; at + 1 < arguments.size(); ++at) {
    if (arguments[at] == name) return arguments[at + 1];
  }
  return {};
}

/// What the function lists; empty if it lists nothing that the parts of the snapshot have.
std::string name_of_list(const std::string& function) {
  for (const char* const name : {"sessions", "instances", "configurations"}) {
    if (function == std::string("show_") + name) return name;
  }
  return {};
}

/// Prints it; the exit status.
int printed(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

/// Adds what $FOREBAY_STAGE_OUT of a batch job says as `#FB stage_out` lines, for scripts whose directives come from
/// options. Slurm keeps the job's environment beside its script: a number of four bytes, then texts that end with NUL.
void add_rules_of_environment(const std::string& script_path, std::string& script) {
  static constexpr std::string_view name = "FOREBAY_STAGE_OUT=";
  const auto environment = read_file(script_path.substr(0, script_path.rfind('/') + 1) + "environment", file_bytes_max);
  if (!environment) return;
  std::string lines;
  for (std::size_t at = 4; at < environment->size();) {
    const std::size_t end = std::min(environment->find('\0', at), environment->size());
    std::string_view text(environment->data() + at, end - at);
    at = end + 1;
    if (!text.starts_with(name)) continue;
    text.remove_prefix(name.size());
    // One rule after another, parted by semicolons.
    while (!text.empty()) {
      const std::size_t stop = std::min(text.find_first_of(";\n"), text.size());
      const std::string_view rule = text.substr(0, stop);
      if (rule.find_first_not_of(" \t") != std::string_view::npos) {
        lines += "#FB stage_out " + std::string(rule) + "\n";
      }
      text.remove_prefix(std::min(stop + 1, text.size()));
    }
  }
  if (!lines.empty()) script.insert(std::min(script.find('\n'), script.size() - 1) + 1, lines);
}

/// A teardown may name a script that Slurm has removed, and calls after setup use what setup read. Of `salloc` with #BB
/// lines alone Slurm keeps no script: such a job has no scratch, and asks for none.
bool needs_no_script(const std::vector<std::string>& arguments, const std::string& function, int error) {
  if (function == "teardown") return true;
  if (error != ENOENT) return false;
  if (function == "setup") return option(arguments, "--capacity").ends_with(":0");
  return function == "data_in" || function == "post_run" || function == "data_out";
}

std::string request_of(const std::vector<std::string>& arguments, const std::string& function) {
  std::string script;
  if (const std::string path = option(arguments, "--job"); !path.empty()) {
    auto content = read_file(path, file_bytes_max);
    if (!content && !needs_no_script(arguments, function, errno))
      fail("the script cannot be read: " + std::string(std::strerror(errno)));
    script = content.value_or(std::string());
    if (!script.empty() && (function == "job_process" || function == "pre_run")) add_rules_of_environment(path, script);
  }
  std::string target = "/slurm?";
  for (const std::string& argument : arguments) target += "a=" + encoded(argument) + "&";
  if (const std::string path = option(arguments, "--nodehostnamefile"); !path.empty()) {
    // One node a line, behind the script. The manager opens no file of Slurm's.
    if (const auto nodes = read_file(path, file_bytes_max)) {
      target += "a=--script-bytes&a=" + std::to_string(script.size()) + "&";
      script += *nodes;
    }
  }
  return "POST " + target + " HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n" +
         "Content-Type: application/octet-stream\r\nContent-Length: " + std::to_string(script.size()) + "\r\n\r\n" +
         script;
}

[[noreturn]] void fail_without_snapshot(const std::string& path) {
  fail("there is no whole " + path + "; start the manager with `forebay up`, with [slurm] in its configuration");
}

std::string snapshot_path(const std::string& root) {
  return root + "/slurm/snapshot";
}

Snapshot snapshot_of(const std::string& root) {
  Snapshot snapshot(snapshot_path(root));
  if (!snapshot.is_whole()) fail_without_snapshot(snapshot_path(root));
  return snapshot;
}

std::vector<Snapshot> parts_of_snapshot(const std::string& root) {
  auto parts = parts_of(snapshot_path(root), snapshot_of(root));
  if (!parts) fail_without_snapshot(snapshot_path(root));
  return std::move(*parts);
}

/// The script's directives are checked by the manager. While it is away they are checked at setup.
Answer job_process(const std::string& root, const std::string& request) {
  const auto deadline = std::chrono::steady_clock::now() + patience_locked;
  do {
    if (auto answer = asked(root, request, patience_locked)) return *answer;
    std::this_thread::sleep_for(retry_interval);
  } while (std::chrono::steady_clock::now() < deadline);
  snapshot_of(root);
  return {0, ""};
}

}  // namespace

int main(int argc, char** argv) {
  reset_signals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string function = option(arguments, "--function");
  if (function.empty()) fail("usage: dw_wlm_cli --function NAME …; Slurm calls this (docs/operations/slurm.md)");
  std::string problem;
  const auto root = forebay::slurm::instance_root(problem);
  if (!root) fail(problem);

  if (function == "pools") {
    const auto pools = snapshot_of(*root).section(function);
    if (!pools || pools->empty()) fail("the manager knows no pools");
    return printed(*pools);
  }
  if (const std::string name = name_of_list(function); !name.empty()) {
    return printed("{\"" + name + "\": [" + joined_items(parts_of_snapshot(*root), name) + "]}\n");
  }
  if (function == "paths") {
    const std::string token = option(arguments, "--token");
    std::uint64_t job = 0;
    const char* const end = token.data() + token.size();
    if (const auto [after, error] = std::from_chars(token.data(), end, job); error == std::errc() && after == end) {
      const auto part = part_of_job(snapshot_path(*root), snapshot_of(*root), job);
      if (!part) fail_without_snapshot(snapshot_path(*root));
      if (const auto variables = part->section("paths " + token)) {
        write_path_file(option(arguments, "--pathfile"), std::string(*variables));
        return 0;
      }
    }
    fail("No matching session: there is no job " + token.substr(0, 40));
  }
  const std::string request = request_of(arguments, function);
  const bool tells = function != "real_size";  // its answer is JSON
  const Answer answer = function == "job_process" ? job_process(*root, request) : ask(*root, request, tells);
  std::fputs(answer.text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? answer.status : 1;
}
