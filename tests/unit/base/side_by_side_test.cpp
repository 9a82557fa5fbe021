// SPDX-License-Identifier: Apache-2.0
#include "base/side_by_side.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/support/randomness.h"

namespace forebay::testing {
namespace {

using Shares = std::vector<std::pair<std::uint16_t, std::uint64_t>>;

TEST(SideBySide, equal_members_give_equal_shares_in_their_order) {
  const Shares free{{2, 100}, {1, 100}, {0, 100}};
  EXPECT_EQ(shares_side_by_side(24, free, 8), (Shares{{2, 8}, {1, 8}, {0, 8}}));
  EXPECT_EQ(shares_side_by_side(48, free, 8), (Shares{{2, 16}, {1, 16}, {0, 16}}));
  EXPECT_EQ(shares_side_by_side(12, free, 8), (Shares{{2, 8}, {1, 4}}));
}

TEST(SideBySide, who_is_full_is_passed_over) {
  const Shares free{{1, 3}, {2, 0}, {3, 100}};
  EXPECT_EQ(shares_side_by_side(50, free, 8), (Shares{{1, 3}, {3, 47}}));
  EXPECT_EQ(shares_side_by_side(200, free, 8), (Shares{{1, 3}, {3, 100}})) << "all that there is";
}

TEST(SideBySide, shares_add_up_and_nobody_gives_more_than_it_has) {
  Random random(test_seed());
  for (int round = 0; round < 1000; ++round) {
    Shares free;
    std::map<std::uint16_t, std::uint64_t> has;
    std::uint64_t total = 0;
    for (std::uint16_t member = 0; member < 1 + below(random, 6); ++member) {
      free.emplace_back(member, below(random, 40));
      has[member] = free.back().second;
      total += free.back().second;
    }
    const std::uint64_t bytes = below(random, 150);
    std::uint64_t given = 0;
    for (const auto& [member, share] : shares_side_by_side(bytes, free, 1 + below(random, 9))) {
      EXPECT_LE(share, has[member]);
      given += share;
    }
    EXPECT_EQ(given, std::min(bytes, total));
  }
}

}  // namespace
}  // namespace forebay::testing
