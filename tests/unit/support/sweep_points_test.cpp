// SPDX-License-Identifier: Apache-2.0
// Each run takes at least a thirty-second of a sweep, and 32 seeds in a row take all of it: for every sweep that there
// can be.
#include "tests/support/sweep_points.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::testing {
namespace {

/// What a run of this seed tries of a sweep that has `points`, and says that it has `points_min` or more.
std::set<std::uint64_t> tried(std::uint64_t seed, std::uint64_t points_min, std::uint64_t points,
                              std::uint64_t longest = share_min) {
  std::set<std::uint64_t> found;
  const std::uint64_t stride = stride_of(points_min, longest);
  for (std::uint64_t n = first_point(seed, stride); n < points; n += stride) found.insert(n);
  return found;
}

TEST(SweepPoints, are_a_thirty_second_at_least_and_all_in_32_seeds) {
  // The same as in test_sweeps.py.
  std::vector<std::uint64_t> least = {30, 47, 48, 49, 100};
  for (std::uint64_t points_min = 1; points_min < 25; ++points_min) least.push_back(points_min);
  for (const std::uint64_t points_min : least) {
    for (std::uint64_t points = points_min; points < points_min + 60; ++points) {
      for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1763931234}}) {
        std::set<std::uint64_t> all;
        for (std::uint64_t seed = first; seed < first + share_min; ++seed) {
          const auto share = tried(seed, points_min, points);
          ASSERT_GE(share.size() * share_min, points) << points_min << " or more: " << points << ", seed " << seed;
          all.insert(share.begin(), share.end());
        }
        ASSERT_EQ(all.size(), points) << points_min << " or more";
      }
    }
  }
}

TEST(SweepPoints, are_all_where_the_longest_stride_is_one) {
  for (std::uint64_t points = 1; points <= 100; ++points) EXPECT_EQ(tried(5, points, points, 1).size(), points);
}

// The same numbers stand in test_sweeps.py: both languages take the same share.
TEST(SweepPoints, are_as_many_as_in_python) {
  constexpr std::uint64_t expected[][2] = {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {11, 11}, {30, 16}, {48, 21}, {1000, 31}};
  for (const auto& [points_min, stride] : expected) EXPECT_EQ(stride_of(points_min), stride) << points_min;
}

}  // namespace
}  // namespace forebay::testing
