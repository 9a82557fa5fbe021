// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/server_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/log.h"
#include "staging-servers/server.h"

namespace forebay::testing {

ServerProcess::ServerProcess() {
  std::string pattern = "/tmp/forebay-test-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  root_ = pattern;
  ::setenv("FOREBAY_ROOT", root_.c_str(), 1);
  ::unsetenv("FOREBAY_SOCKET");
  start();
}

ServerProcess::~ServerProcess() {
  kill();
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

void ServerProcess::start() {
  int ready[2];
  if (::pipe(ready) != 0) std::abort();
  pid_ = ::fork();
  if (pid_ == 0) {
    // Nothing of the test is run at the child's end, and nothing of the child's outlives the test.
    // Of the test's descriptors it keeps none, or segments would seem to be in use.
    if (::dup2(ready[1], 3) != 3) ::_exit(3);
    ::close_range(4, ~0U, 0);
    log::set_level(log::Level::error);
    server::ServerOptions options;
    options.root = root_;
    options.socket_path = root_ + "/socket";
    options.capacity_bytes = std::uint64_t{1} << 30;
    auto server = server::Server::start(posix_device(), options);
    if (!server) {
      log::error("{}", server.error().message());
      ::_exit(1);
    }
    if (::write(3, "r", 1) != 1) ::_exit(2);
    ::close(3);
    (*server)->run();
    ::_exit(0);
  }
  ::close(ready[1]);
  char byte = 0;
  const bool started = ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  if (!started) {
    ADD_FAILURE() << "the server did not start";
    std::abort();
  }
}

void ServerProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void ServerProcess::suspend() {
  ::kill(pid_, SIGSTOP);
}
void ServerProcess::resume() {
  ::kill(pid_, SIGCONT);
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
