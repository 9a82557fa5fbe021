// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/space/space_map.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/randomness.h"

namespace forebay::server {
namespace {

using ::forebay::testing::below;
using ::forebay::testing::chance;
using ::forebay::testing::Random;

constexpr std::uint64_t unit = space_unit_bytes;
constexpr std::uint64_t segment_bytes = 32 * unit;

std::uint64_t total(const std::vector<Extent>& extents) {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.length;
  return bytes;
}

TEST(SpaceMap, what_an_owner_freed_is_forgotten_with_its_last_segment) {
  SpaceMap map(1, segment_bytes);
  const Owner first{1, 1, 0};
  const Owner second{2, 1, 0};
  std::vector<std::uint32_t> fresh;
  ASSERT_EQ(total(*map.allocate(first, segment_bytes, fresh)), segment_bytes);
  map.release({0, 10 * unit, unit});
  map.release({0, 20 * unit, unit});
  map.set_owner(0, second);
  map.set_owner(0, first);
  // Not the one that was freed last.
  EXPECT_EQ(*map.allocate(first, unit, fresh), (std::vector<Extent>{{0, 10 * unit, unit}}));
}

TEST(RangeSet, neighbours_become_one_and_overlaps_are_refused) {
  RangeSet set;
  EXPECT_TRUE(set.insert(0, 10));
  EXPECT_TRUE(set.insert(20, 10));
  EXPECT_FALSE(set.insert(5, 1));
  EXPECT_FALSE(set.insert(15, 10));
  EXPECT_FALSE(set.insert(0, 40));
  EXPECT_TRUE(set.insert(10, 10));
  EXPECT_EQ(set.ranges().size(), 1U);
  EXPECT_EQ(set.total(), 30U);
  EXPECT_FALSE(set.erase(25, 6));
  EXPECT_TRUE(set.erase(5, 20));
  EXPECT_EQ(set.ranges().size(), 2U);
  EXPECT_EQ(set.total(), 10U);
  EXPECT_TRUE(set.contains(25, 5));
  EXPECT_FALSE(set.contains(4, 2));
}

TEST(SpaceMap, what_is_closed_is_given_to_nobody) {
  SpaceMap map(2, segment_bytes);
  const Owner owner{1, 1, 0};
  std::vector<std::uint32_t> fresh;
  const auto held = *map.allocate(owner, 2 * unit, fresh);
  map.close(held[0].segment);
  EXPECT_EQ(map.free_bytes(), segment_bytes);
  EXPECT_EQ(map.closed_bytes(), segment_bytes - 2 * unit);
  for (const Extent& extent : held) map.release(extent);
  EXPECT_EQ(map.free_bytes(), segment_bytes);
  EXPECT_EQ(map.closed_bytes(), segment_bytes);
  EXPECT_FALSE(map.allocate(owner, segment_bytes + unit, fresh));
  const auto other = *map.allocate(owner, segment_bytes, fresh);
  for (const Extent& extent : other) EXPECT_NE(extent.segment, held[0].segment);
  EXPECT_EQ(map.free_bytes(), 0U);
}

TEST(SpaceMap, takes_all_or_nothing) {
  SpaceMap map(2, segment_bytes);
  std::vector<std::uint32_t> fresh;
  const Owner owner{1, 1, 0};
  EXPECT_FALSE(map.allocate(owner, 2 * segment_bytes + 1, fresh));
  EXPECT_EQ(map.free_bytes(), 2 * segment_bytes);
  EXPECT_FALSE(map.owner(0));
  const auto all = map.allocate(owner, 2 * segment_bytes, fresh);
  ASSERT_TRUE(all);
  EXPECT_EQ(total(*all), 2 * segment_bytes);
  EXPECT_EQ(fresh, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_FALSE(map.allocate(owner, 1, fresh));
}

TEST(SpaceMap, one_group_never_gets_space_in_another_groups_segment) {
  SpaceMap map(2, segment_bytes);
  std::vector<std::uint32_t> fresh;
  ASSERT_TRUE(map.allocate({1, 1, 0}, unit, fresh));
  ASSERT_TRUE(map.allocate({2, 1, 0}, unit, fresh));
  EXPECT_FALSE(map.allocate({1, 1, 0}, segment_bytes, fresh));
  EXPECT_FALSE(map.allocate({1, 2, 0}, unit, fresh)) << "a newer incarnation is another group";
  EXPECT_TRUE(map.allocate({1, 1, 1}, segment_bytes - unit, fresh)) << "ranks of one group share";
}

TEST(SpaceMap, what_was_released_last_is_given_first) {
  SpaceMap map(1, segment_bytes);
  std::vector<std::uint32_t> fresh;
  const Owner owner{1, 1, 0};
  const auto first = map.allocate(owner, 2 * unit, fresh);
  const auto second = map.allocate(owner, 2 * unit, fresh);
  ASSERT_TRUE(first && second);
  map.release(first->front());
  map.release(second->front());
  EXPECT_EQ(map.allocate(owner, 2 * unit, fresh)->front(), second->front());
  EXPECT_EQ(map.allocate(owner, 2 * unit, fresh)->front(), first->front());
}

TEST(SpaceMap, gives_space_in_order_of_place) {
  SpaceMap map(3, segment_bytes);
  std::vector<std::uint32_t> fresh;
  const Owner owner{1, 1, 0};
  const auto step = *map.allocate(owner, 3 * segment_bytes, fresh);
  for (const Extent& extent : step) map.release({extent.segment, 0, 16 * unit});
  for (const Extent& extent : step) map.release({extent.segment, 16 * unit, 16 * unit});
  EXPECT_EQ(*map.allocate(owner, 3 * segment_bytes, fresh), step);
}

TEST(SpaceMap, foreign_extents_are_refused) {
  SpaceMap map(1, segment_bytes);
  EXPECT_FALSE(map.take({1, 0, unit}));
  EXPECT_FALSE(map.take({0, 0, 0}));
  EXPECT_FALSE(map.take({0, 1, unit}));
  EXPECT_FALSE(map.take({0, 0, unit + 1}));
  EXPECT_FALSE(map.take({0, segment_bytes, unit}));
  EXPECT_FALSE(map.take({0, ~std::uint64_t{0} - unit + 1, 2 * unit}));
  EXPECT_TRUE(map.take({0, 0, unit}));
  EXPECT_FALSE(map.take({0, 0, unit}));
  EXPECT_EQ(map.free_bytes(), segment_bytes - unit);
}

/// Random allocations and releases against a map of who holds each unit.
TEST(SpaceMap, never_gives_the_same_space_twice) {
  for (std::uint64_t round = 0; round < testing::test_count(20); ++round) {
    const std::uint64_t seed = testing::test_seed() + round;
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    SpaceMap map(1 + static_cast<std::uint32_t>(below(random, 6)), segment_bytes);
    std::vector<std::pair<Owner, Extent>> held;
    std::set<std::pair<std::uint32_t, std::uint64_t>> taken;
    for (int i = 0; i < 500; ++i) {
      if (!held.empty() && chance(random, 2)) {
        const std::size_t index = below(random, held.size());
        const Extent extent = held[index].second;
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
        for (std::uint64_t at = extent.offset; at < extent.offset + extent.length; at += unit)
          taken.erase({extent.segment, at});
        map.release(extent);
      } else {
        const Owner owner{1 + below(random, 2), 1, static_cast<std::uint32_t>(below(random, 2))};
        const std::uint64_t bytes = 1 + below(random, 12 * unit);
        std::vector<std::uint32_t> fresh;
        const auto extents = map.allocate(owner, bytes, fresh);
        if (!extents) continue;
        ASSERT_GE(total(*extents), bytes);
        for (const Extent& extent : *extents) {
          ASSERT_TRUE(map.owner(extent.segment) && map.owner(extent.segment)->same_group(owner));
          for (std::uint64_t at = extent.offset; at < extent.offset + extent.length; at += unit) {
            ASSERT_TRUE(taken.insert({extent.segment, at}).second) << "segment " << extent.segment << " @ " << at;
          }
          held.emplace_back(owner, extent);
        }
      }
      ASSERT_EQ(map.free_bytes(), map.total_bytes() - taken.size() * unit);
    }
  }
}

}  // namespace
}  // namespace forebay::server
