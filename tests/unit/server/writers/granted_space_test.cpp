// SPDX-License-Identifier: Apache-2.0
// The space of a rank: what a client says of a part is believed only as far as it was granted.
#include "staging-servers/writers/granted_space.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

constexpr std::uint64_t grain = space_unit_bytes;

class GrantedSpaceTest : public ::testing::Test {
 protected:
  void SetUp() override { granted_.add(Extent{1, 0, 4 * grain}); }

  /// A part with one extent, whose first bytes are its metadata.
  static wire::PartT part(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
    wire::PartT part;
    part.extents.emplace_back(segment, 0, 0, offset, length);
    part.metadata.emplace_back(segment, 0, 0, offset, 64);
    part.metadata_bytes = 64;
    return part;
  }

  const SpaceMap map_{4, 8 * grain};
  const SegmentLayout layout_{{2, 2}};
  GrantedSpace granted_;
};

TEST_F(GrantedSpaceTest, goes_into_a_part_and_comes_back_from_it) {
  const auto taken = granted_.take(map_, layout_, 3, part(1, grain, 2 * grain));
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->rank, 3U);
  EXPECT_EQ(granted_.total(), 2 * grain);
  granted_.add(taken->extents);
  EXPECT_EQ(granted_.take_all(), (std::vector<Extent>{{1, 0, 4 * grain}}));
  EXPECT_FALSE(granted_.any_in(1));
}

TEST_F(GrantedSpaceTest, stays_as_it_is_when_a_part_is_refused) {
  wire::PartT twice = part(1, 0, grain);
  twice.extents.push_back(twice.extents.front());
  wire::PartT elsewhere = part(1, 0, grain);
  elsewhere.metadata.front() = wire::Extent(1, 0, 0, 2 * grain, 64);
  wire::PartT longer = part(1, 0, grain);
  longer.metadata_bytes = 65;
  wire::PartT of_other_member = part(1, 0, grain);
  of_other_member.extents.front() = wire::Extent(1, 1, 0, 0, grain);
  wire::PartT metadata_of_other_member = part(1, 0, grain);
  metadata_of_other_member.metadata.front() = wire::Extent(1, 1, 0, 0, 64);
  for (const wire::PartT& refused :
       {part(0, 0, grain), part(1, 4 * grain, grain), part(1, 7 * grain, 2 * grain), part(9, 0, grain), twice,
        elsewhere, longer, of_other_member, metadata_of_other_member}) {
    const auto taken = granted_.take(map_, layout_, 0, refused);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, ErrorCode::protocol);
    EXPECT_EQ(granted_.total(), 4 * grain);
  }
}

}  // namespace
}  // namespace forebay::server
