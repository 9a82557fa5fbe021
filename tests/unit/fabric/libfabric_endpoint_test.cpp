// SPDX-License-Identifier: Apache-2.0
// What the paths ask of libfabric itself, whatever its version does.
#include <poll.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "fabric/libfabric.h"
#include "tests/support/sweep_points.h"

namespace forebay::testing {
namespace {

using fabric::PeerMay;
using fabric::RmaEndpoint;

constexpr std::size_t block_bytes = 4096;
constexpr std::uint32_t hello = 1;
constexpr std::uint32_t reading = 2;

/// Two ends on this node that know each other; skips where there is no libfabric.
class LibfabricEndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto* end : {&server_, &client_}) {
      auto opened = fabric::open_libfabric_endpoint("tcp", "127.0.0.1");
      if (!opened && opened.error().code == ErrorCode::unsupported) GTEST_SKIP() << opened.error().message();
      ASSERT_TRUE(opened) << opened.error().message();
      *end = std::move(opened->endpoint);
    }
    ASSERT_TRUE(server_->set_peer(client_->address(), "127.0.0.1"));
    ASSERT_TRUE(client_->set_peer(server_->address(), "127.0.0.1"));
    ASSERT_TRUE(server_->receive(hello, received_));
    const std::vector<std::byte> text(16);
    const Deadline deadline = Deadline::after_ms(30'000);
    bool sent = false;
    while (true) {
      if (!sent) {
        const auto answer = client_->send(text);
        ASSERT_TRUE(answer) << answer.error().message();
        sent = *answer;
      }
      ASSERT_TRUE(client_->next());
      const auto arrived = server_->next();
      ASSERT_TRUE(arrived);
      if (*arrived) break;
      ASSERT_FALSE(deadline.passed());
    }
  }

  std::vector<std::byte> received_ = std::vector<std::byte>(block_bytes);
  std::unique_ptr<RmaEndpoint> server_;
  std::unique_ptr<RmaEndpoint> client_;
};

// Before 1.19 libfabric itself loses keys, or crashes, when its tree of keys changes while a peer's request looks for
// one.
TEST_F(LibfabricEndpointTest, memory_comes_and_goes_while_another_thread_moves_the_peers_reads_on) {
  const int reads = stride_max() == 1 ? 3000 : 500;  // a race: the deep suites look for it longer
  std::vector<std::byte> memory(block_bytes);
  std::iota(reinterpret_cast<unsigned char*>(memory.data()),
            reinterpret_cast<unsigned char*>(memory.data() + memory.size()), 0);
  std::atomic<bool> over = false;
  std::thread mover([this, &over] {
    while (!over) {
      if (const auto ended = client_->next(); !ended || (*ended && (*ended)->error)) return;
    }
  });
  std::thread exposer([this, &over] {
    std::vector<std::byte> other(block_bytes);
    while (!over) {
      std::vector<std::unique_ptr<fabric::ExposedMemory>> several;
      for (int count = 0; count < 32; ++count) {
        auto one = client_->expose(other, PeerMay::read);
        if (!one) {
          over = true;
          ADD_FAILURE() << one.error().message();
          return;
        }
        several.push_back(std::move(*one));
      }
    }
  });
  std::vector<std::byte> into(block_bytes);
  std::string failure;
  for (int number = 0; number < reads && failure.empty() && !over; ++number) {
    const Deadline deadline = Deadline::after_ms(30'000);
    auto exposed = client_->expose(memory, PeerMay::read);
    if (!exposed) {
      failure = exposed.error().message();
      break;
    }
    bool started = false;
    while (failure.empty()) {
      if (!started) {
        const auto answer = server_->read(reading, into, (*exposed)->place());
        if (!answer) failure = answer.error().message();
        started = answer && *answer;
      }
      const auto ended = server_->next();
      if (!ended) failure = ended.error().message();
      if (ended && *ended && (*ended)->error) failure = (*ended)->error->message();
      if (ended && *ended) break;
      if (deadline.passed()) failure = "nothing moves";
    }
    if (failure.empty() && into != memory) failure = "other bytes";
    if (!failure.empty()) failure += " at read " + std::to_string(number);
    std::fill(into.begin(), into.end(), std::byte{0});
  }
  over = true;
  mover.join();
  exposer.join();
  EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace forebay::testing
