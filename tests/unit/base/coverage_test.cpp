// SPDX-License-Identifier: Apache-2.0
#include "base/coverage.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace forebay {
namespace {

struct Block {
  std::vector<std::uint64_t> start, count;
  std::uint32_t rank = 0;
};

Coverage cover(const std::vector<std::uint64_t>& shape, const std::vector<Block>& blocks) {
  std::vector<CoveringBlock> spans;
  for (const Block& block : blocks) spans.push_back({block.start, block.count, block.rank});
  return coverage_of(shape, spans);
}

TEST(Coverage, of_blocks_side_by_side_is_whole) {
  EXPECT_TRUE(cover({4, 6}, {{{0, 0}, {4, 6}, 0}}).is_whole());
  EXPECT_TRUE(cover({4, 6}, {{{0, 0}, {2, 6}, 0}, {{2, 0}, {2, 3}, 1}, {{2, 3}, {2, 3}, 2}}).is_whole());
  EXPECT_EQ(to_text(cover({4}, {{{0}, {4}, 0}})), "");
}

TEST(Coverage, names_ranks_that_overlap_and_counts_what_is_missing) {
  EXPECT_EQ(to_text(cover({8}, {{{0}, {4}, 0}, {{0}, {4}, 1}})),
            "no block covers 4 of its 8 elements; blocks of ranks 0 and 1 overlap");
  EXPECT_EQ(to_text(cover({8}, {{{0}, {4}, 0}})), "no block covers 4 of its 8 elements");
  EXPECT_EQ(to_text(cover({8}, {{{0}, {5}, 2}, {{4}, {4}, 2}})), "blocks of rank 2 overlap");
  EXPECT_EQ(to_text(cover({3, 3}, {})), "no block covers 9 of its 9 elements");
  EXPECT_EQ(to_text(cover({3, 3}, {{{1, 1}, {0, 2}, 0}})), "no block covers 9 of its 9 elements");
}

TEST(Coverage, is_that_of_counting_element_by_element) {
  const char* given = std::getenv("FOREBAY_TEST_SEED");
  const unsigned seed = given == nullptr ? 1 : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  for (int round = 0; round < 2'000; ++round) {
    const std::size_t dimensions = 1 + below(3);
    std::vector<std::uint64_t> shape;
    std::uint64_t elements = 1;
    for (std::size_t d = 0; d < dimensions; ++d) {
      shape.push_back(1 + below(6));
      elements *= shape.back();
    }
    std::vector<Block> blocks(below(7));
    std::vector<int> times(elements, 0);
    for (Block& block : blocks) {
      block.rank = static_cast<std::uint32_t>(below(4));
      for (const std::uint64_t extent : shape) {
        block.start.push_back(below(extent));
        block.count.push_back(below(extent - block.start.back() + 1));
      }
      for (std::uint64_t i = 0; i < elements; ++i) {
        std::uint64_t rest = i;
        bool inside = true;
        for (std::size_t d = dimensions; d-- > 0;) {
          const std::uint64_t place = rest % shape[d];
          rest /= shape[d];
          inside = inside && place >= block.start[d] && place < block.start[d] + block.count[d];
        }
        times[i] += inside ? 1 : 0;
      }
    }
    const Coverage coverage = cover(shape, blocks);
    ASSERT_TRUE(coverage.exact) << "seed " << seed;
    ASSERT_EQ(coverage.missing, static_cast<std::uint64_t>(std::ranges::count(times, 0))) << "seed " << seed;
    ASSERT_EQ(coverage.overlap.has_value(), std::ranges::any_of(times, [](int n) { return n > 1; })) << "seed " << seed;
  }
}

TEST(Coverage, of_very_many_blocks_is_found_without_comparing_all_pairs) {
  // A hundred by a hundred blocks, side by side.
  std::vector<Block> blocks;
  for (std::uint64_t y = 0; y < 100; ++y) {
    for (std::uint64_t x = 0; x < 100; ++x) blocks.push_back({{y * 7, x * 5}, {7, 5}, static_cast<std::uint32_t>(y)});
  }
  const Coverage coverage = cover({700, 500}, blocks);
  EXPECT_TRUE(coverage.exact);
  EXPECT_TRUE(coverage.is_whole());
}

TEST(Coverage, of_arrays_beyond_counting_does_not_overflow) {
  const std::uint64_t large = std::uint64_t{1} << 40;
  const Coverage coverage = cover({large, large}, {{{0, 0}, {large, large}, 0}});
  EXPECT_EQ(coverage.missing, 0U);
}

}  // namespace
}  // namespace forebay
