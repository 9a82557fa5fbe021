// SPDX-License-Identifier: Apache-2.0
#include "fabric/frame_socket.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <csignal>

#include <gtest/gtest.h>

namespace forebay::testing {
namespace {

/// While it lives, SIGALRM interrupts this process each millisecond.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, &before_);
    const itimerval each{{0, 1000}, {0, 1000}};
    ::setitimer(ITIMER_REAL, &each, nullptr);
  }
  ~Interruptions() {
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  struct sigaction before_{};
};

// As after SIGSTOP and SIGCONT: the time since anything moved is that of the stop.
TEST(FrameSocket, that_is_interrupted_does_not_take_the_server_for_silent) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  fabric::FrameSocket frames(Descriptor(ends[0]), 0);
  const Descriptor server(ends[1]);
  const Interruptions interruptions;
  int asked = 0;
  std::array<std::byte, 64> bytes{};
  const auto received = frames.receive(bytes, [&]() -> Result<void> {
    if (++asked == 3) {
      const std::array<char, 64> sent{'x'};
      EXPECT_EQ(::send(server.get(), sent.data(), sent.size(), 0), 64);
    }
    return {};
  });
  ASSERT_TRUE(received) << received.error().message();
  EXPECT_GE(asked, 3);
  EXPECT_EQ(bytes.front(), std::byte{'x'});
}

TEST(FrameSocket, takes_a_server_that_says_nothing_for_silent) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  fabric::FrameSocket frames(Descriptor(ends[0]), 0);
  const Descriptor server(ends[1]);
  std::array<std::byte, 64> bytes{};
  const auto received = frames.receive(bytes, []() -> Result<void> { return {}; });
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, ErrorCode::timeout);
}

}  // namespace
}  // namespace forebay::testing
