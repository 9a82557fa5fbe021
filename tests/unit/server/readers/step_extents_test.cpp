// SPDX-License-Identifier: Apache-2.0
// What a reader of a step on another node may ask for, and what it costs the server to find out.
#include "staging-servers/readers/step_extents.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"

namespace forebay::server {
namespace {

class StepExtentsTest : public ::testing::Test {
 protected:
  /// Adds a part with these extents of segment 1.
  void add(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& extents) {
    auto part = std::make_unique<journal::PartT>();
    for (const auto& [offset, length] : extents) part->extents.emplace_back(1, 0, 0, offset, length);
    step_.parts.push_back(std::move(part));
  }

  bool lies_in(std::uint64_t offset, std::uint64_t length, std::uint32_t segment = 1, std::uint16_t member = 0) const {
    const std::vector<wire::Extent> asked{wire::Extent(segment, member, 0, offset, length)};
    return lie_in(step_, asked);
  }

  journal::StepCommittedT step_;
};

TEST_F(StepExtentsTest, a_reader_gets_what_lies_in_the_step_and_no_byte_more) {
  add({{4096, 4096}, {16384, 4096}});
  add({{8192, 4096}});  // behind that of the other rank
  EXPECT_TRUE(lies_in(4096, 4096));
  EXPECT_TRUE(lies_in(5000, 100));
  EXPECT_TRUE(lies_in(4096, 8192));
  EXPECT_TRUE(lies_in(16384 + 4095, 1));
  EXPECT_FALSE(lies_in(4095, 2));
  EXPECT_FALSE(lies_in(4096, 8193));
  EXPECT_FALSE(lies_in(4096, 16384));
  EXPECT_FALSE(lies_in(4096, 0));
  EXPECT_FALSE(lies_in(4096, 4096, 2));
  EXPECT_FALSE(lies_in(4096, 4096, 1, 1));
  EXPECT_FALSE(lies_in(~std::uint64_t{0}, 2));
  EXPECT_FALSE(lies_in(0, 1));
}

TEST_F(StepExtentsTest, an_attribute_set_of_an_earlier_step_belongs_to_it_once_or_twice) {
  add({{4096, 4096}});
  add({{8192, 4096}});
  for (const auto& part : step_.parts) {
    part->attributes = std::make_unique<journal::AttributeSetT>();
    part->attributes->extents.emplace_back(2, 0, 0, 0, 4096);
  }
  EXPECT_TRUE(lies_in(0, 4096, 2));
  EXPECT_FALSE(lies_in(0, 4097, 2));
}

TEST_F(StepExtentsTest, one_of_several_that_are_asked_for_does_not_lie_there) {
  add({{4096, 4096}, {16384, 4096}});
  const std::vector<wire::Extent> asked{{1, 0, 0, 16384, 10}, {1, 0, 0, 4096, 10}, {1, 0, 0, 4096, 4096}};
  EXPECT_TRUE(lie_in(step_, asked));
  std::vector<wire::Extent> more = asked;
  more.emplace_back(1, 0, 0, 8190, 10);
  EXPECT_FALSE(lie_in(step_, more));
}

TEST_F(StepExtentsTest, many_extents_of_a_step_in_many_pieces_are_found_at_once) {
  constexpr std::uint64_t pieces = 200'000;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
  for (std::uint64_t i = 0; i < pieces; ++i) extents.emplace_back(8192 * i, 4096);
  add(extents);
  std::vector<wire::Extent> asked;
  for (std::uint64_t i = 0; i < 4096; ++i) asked.emplace_back(1, 0, 0, 8192 * (pieces - 1 - i), 4096);
  const std::int64_t before_ns = monotonic_ns();
  EXPECT_TRUE(lie_in(step_, asked));
  // Each with each would be 800 million comparisons.
  EXPECT_LT(monotonic_ns() - before_ns, 500'000'000);
}

}  // namespace
}  // namespace forebay::server
