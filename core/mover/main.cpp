// SPDX-License-Identifier: Apache-2.0
// The program forebay-mover: reads one request from standard input, does it, and tells how it goes on standard output.
// Format: docs/design/file-mover.md. It ends when standard input does.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "base/return_error.h"
#include "mover/capabilities.h"
#include "mover/stage.h"

namespace forebay::mover {
namespace {

constexpr std::size_t request_bytes_max = 65536;
constexpr rlim_t descriptors_max = 65536;

std::atomic<bool> stopping = false;

/// Reads standard input: first the request, then a byte for each yes.
class Input {
 public:
  Result<Request> request() {
    std::string text;
    char byte = 0;
    bool at_end_of_field = true;
    while (read(byte)) {
      // An empty field ends it.
      if (byte == '\0' && at_end_of_field) return Request::parse(text);
      at_end_of_field = byte == '\0';
      text.push_back(byte);
      if (text.size() > request_bytes_max) return fail(ErrorCode::invalid_argument, "the request is too long");
    }
    return fail(ErrorCode::invalid_argument, "the request ends early");
  }

  /// From now on a thread waits for the end of the input, and ends the process with it.
  void watch() {
    std::thread([this] {
      char byte = 0;
      while (read(byte)) {
        const std::lock_guard lock(mutex_);
        if (byte == 'g') ++confirmed_;
        changed_.notify_all();
      }
      ::_exit(1);
    }).detach();
  }

  Result<void> confirm() {
    std::unique_lock lock(mutex_);
    while (confirmed_ == 0) {
      if (stopping) return fail(ErrorCode::cancelled, "the stage was told to stop");
      changed_.wait_for(lock, std::chrono::milliseconds(100));
    }
    --confirmed_;
    return {};
  }

 private:
  static bool read(char& byte) {
    while (true) {
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count == 1) return true;
      if (count == 0 || errno != EINTR) return false;
    }
  }

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::uint64_t confirmed_ = 0;
};

void prepare() {
  // Nobody looks into a process that holds descriptors of others' places, nor at its memory.
  (void)::prctl(PR_SET_DUMPABLE, 0);
  keep_capabilities_for_files();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = std::min(limit.rlim_max, descriptors_max);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  struct sigaction stop{};
  stop.sa_handler = [](int) { stopping = true; };
  (void)::sigaction(SIGTERM, &stop, nullptr);
  // A lease that is broken, a reader that is gone; Ctrl-C in a terminal is the client's affair.
  for (const int number : {SIGIO, SIGPIPE, SIGINT}) (void)std::signal(number, SIG_IGN);
}

int run() {
  prepare();
  Report report(STDOUT_FILENO);
  auto* input = new Input;  // The thread that watches it may outlive main().
  const auto result = [&]() -> Result<Summary> {
    ASSIGN_OR_RETURN(const Request request, input->request());
    input->watch();
    return stage(request, report, [&] { return input->confirm(); }, stopping);
  }();
  if (!result) {
    report.failed(result.error());
    return 1;
  }
  report.done(*result);
  return 0;
}

}  // namespace
}  // namespace forebay::mover

int main() {
  // Nothing is left to be taken apart, and the thread that watches the input must not meet objects that are gone.
  ::_exit(forebay::mover::run());
}
