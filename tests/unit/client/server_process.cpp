// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <new>

#include <gtest/gtest.h>

#include "base/log.h"
#include "staging-servers/daemon/server.h"
#include "tests/unit/client/faults/failing_memory.h"

namespace forebay::testing {

namespace {

// A server that does not start ends, and says nothing.
constexpr int start_timeout_ms = 60'000;

/// The server's life; does not return.
[[noreturn]] void serve(const std::string& root, int ready, std::uint64_t failing_allocation) {
  log::set_level(log::Level::error);
  server::ServerOptions options;
  options.root = root;
  options.socket_path = root + "/socket";
  options.capacity_bytes = std::uint64_t{1} << 30;
  options.checked_per_turn = 0;  // its allocations are not what is tried
  if (failing_allocation != 0) options.flush_interval_ms = 1;
  auto server = server::Server::start(posix_device(), options);
  if (!server) {
    log::error("{}", server.error().message());
    ::_exit(1);
  }
  const pid_t pid = ::getpid();
  if (::write(ready, &pid, sizeof pid) != sizeof pid) ::_exit(2);
  ::close(ready);
  std::set_new_handler([] { ::_exit(4); });
  fail_allocation_of_any_thread(failing_allocation);
  (*server)->run();
  ::_exit(0);
}

}  // namespace

ServerProcess::ServerProcess() {
  std::string pattern = "/tmp/forebay-test-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  root_ = pattern;
  ::setenv("FOREBAY_ROOT", root_.c_str(), 1);
  ::unsetenv("FOREBAY_SOCKET");
  int orders[2];
  int answers[2];
  if (::pipe(orders) != 0 || ::pipe(answers) != 0) std::abort();
  helper_ = ::fork();
  if (helper_ == 0) {
    // Nothing of the test is run at the child's end, and nothing of the child's outlives the test.
    // Of the test's descriptors it keeps none, or segments would seem to be in use.
    const int order = ::fcntl(orders[0], F_DUPFD, 100);
    const int answer = ::fcntl(answers[1], F_DUPFD, 100);
    if (order < 0 || answer < 0 || ::dup2(order, 3) != 3 || ::dup2(answer, 4) != 4) ::_exit(3);
    ::close_range(5, ~0U, 0);
    for (std::uint64_t failing_allocation = 0;
         ::read(3, &failing_allocation, sizeof failing_allocation) == sizeof failing_allocation;) {
      // Not sooner: one that ended as soon as it had started is still to be found by its number.
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      if (::fork() != 0) continue;
      ::close(3);
      serve(root_, 4, failing_allocation);
    }
    ::_exit(0);
  }
  ::close(orders[0]);
  ::close(answers[1]);
  orders_ = Descriptor(orders[1]);
  answers_ = Descriptor(answers[0]);
  start();
}

ServerProcess::~ServerProcess() {
  kill();
  orders_ = Descriptor();
  ::waitpid(helper_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

void ServerProcess::start(std::uint64_t failing_allocation) {
  pid_t pid = -1;
  pollfd answer{answers_.get(), POLLIN, 0};
  const bool started =
      ::write(orders_.get(), &failing_allocation, sizeof failing_allocation) == sizeof failing_allocation &&
      ::poll(&answer, 1, start_timeout_ms) == 1 && ::read(answers_.get(), &pid, sizeof pid) == sizeof pid;
  if (started) server_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!server_.valid()) {
    ADD_FAILURE() << "the server did not start";
    std::abort();
  }
}

bool ServerProcess::has_ended() const {
  pollfd end{server_.get(), POLLIN, 0};
  return server_.valid() && ::poll(&end, 1, 0) == 1;
}

void ServerProcess::send(int signal) {
  if (server_.valid()) ::syscall(SYS_pidfd_send_signal, server_.get(), signal, nullptr, 0);
}

void ServerProcess::kill() {
  send(SIGKILL);
  pollfd end{server_.get(), POLLIN, 0};
  if (server_.valid()) ::poll(&end, 1, -1);
  server_ = Descriptor();
}

void ServerProcess::suspend() {
  send(SIGSTOP);
}
void ServerProcess::resume() {
  send(SIGCONT);
}

ReservationInfo ServerProcess::create(const std::string& name, std::uint64_t capacity_bytes) {
  auto admin = Admin::connect();
  EXPECT_TRUE(admin) << admin.error().message();
  ReservationSpec spec;
  spec.name = name;
  spec.capacity_bytes = capacity_bytes;
  spec.lifetime = Lifetime::persistent;
  auto created = (*admin)->create_reservation(spec);
  EXPECT_TRUE(created) << created.error().message();
  return *created;
}

}  // namespace forebay::testing
