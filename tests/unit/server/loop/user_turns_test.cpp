// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/loop/user_turns.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

TEST(UserTurns, the_time_of_a_user_is_counted_over_all_connections_in_each_turn_of_the_loop) {
  auto loop = EventLoop::create();
  ASSERT_TRUE(loop) << loop.error().message();
  UserTurns turns(**loop, 2'000'000);
  int tasks = 0;
  const EventLoop::Task in_next_turn = [&] {
    EXPECT_FALSE(turns.has_spent(1001));
    EXPECT_FALSE(turns.has_spent(1002));
    (*loop)->stop();
    ++tasks;
  };
  (*loop)->post([&] {
    for (int connection = 0; connection < 2; ++connection) {
      EXPECT_FALSE(turns.has_spent(1001));
      turns.spend(1001, 1'000'000);
    }
    EXPECT_TRUE(turns.has_spent(1001));
    EXPECT_FALSE(turns.has_spent(1002));
    (*loop)->post(in_next_turn);
    ++tasks;
  });
  (*loop)->run();
  EXPECT_EQ(tasks, 2);
}

}  // namespace
}  // namespace forebay::server
