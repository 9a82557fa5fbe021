// SPDX-License-Identifier: Apache-2.0
#include "streams/recent_commits.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

TEST(RecentCommits, know_a_step_for_nine_seconds_at_least_and_ten_at_most) {
  RecentCommits commits;
  for (std::uint64_t step = 0; step < 300; ++step) {
    const auto now_ns = static_cast<std::int64_t>(step) * second_ns / 10;
    commits.note({1, step}, now_ns);
    for (std::uint64_t earlier = 0; earlier <= step; ++earlier) {
      const std::uint64_t age_tenths = step - earlier;
      if (age_tenths > 90 && age_tenths < 100) continue;
      EXPECT_EQ(commits.has({1, earlier}, now_ns), age_tenths <= 90) << earlier << " at " << step;
    }
  }
}

TEST(RecentCommits, know_nothing_of_other_epochs_and_of_steps_that_nobody_committed) {
  RecentCommits commits;
  EXPECT_FALSE(commits.has({1, 0}, 0));
  commits.note({1, 5}, 0);
  EXPECT_TRUE(commits.has({1, 5}, 1));
  EXPECT_FALSE(commits.has({1, 4}, 1));
  EXPECT_FALSE(commits.has({1, 6}, 1));
  commits.note({2, 3}, 2);
  EXPECT_TRUE(commits.has({2, 3}, 3));
  EXPECT_FALSE(commits.has({2, 5}, 3));
  EXPECT_FALSE(commits.has({1, 3}, 3));
}

}  // namespace
}  // namespace forebay::server
