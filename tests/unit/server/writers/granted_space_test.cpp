// SPDX-License-Identifier: Apache-2.0
// The space of a rank: what a client says of a part is believed only as far as it was granted.
#include "staging-servers/writers/granted_space.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

constexpr std::uint64_t unit = space_unit_bytes;

class GrantedSpaceTest : public ::testing::Test {
 protected:
  void SetUp() override { granted_.add(Extent{1, 0, 4 * unit}); }

  /// A part with one extent, whose first bytes are its metadata.
  static wire::PartT part(std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
    wire::PartT part;
    part.extents.emplace_back(segment, 0, 0, offset, length);
    part.metadata.emplace_back(segment, 0, 0, offset, 64);
    part.metadata_bytes = 64;
    return part;
  }

  const SpaceMap map_{4, 8 * unit};
  const SegmentLayout layout_{{2, 2}};
  GrantedSpace granted_;
};

TEST_F(GrantedSpaceTest, goes_into_a_part_and_comes_back_from_it) {
  const auto taken = granted_.take(map_, layout_, 3, part(1, unit, 2 * unit));
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->rank, 3U);
  EXPECT_EQ(granted_.total(), 2 * unit);
  granted_.add(taken->extents);
  EXPECT_EQ(granted_.take_all(), (std::vector<Extent>{{1, 0, 4 * unit}}));
  EXPECT_FALSE(granted_.any_in(1));
}

TEST_F(GrantedSpaceTest, stays_as_it_is_when_a_part_is_refused) {
  wire::PartT twice = part(1, 0, unit);
  twice.extents.push_back(twice.extents.front());
  wire::PartT elsewhere = part(1, 0, unit);
  elsewhere.metadata.front() = wire::Extent(1, 0, 0, 2 * unit, 64);
  wire::PartT longer = part(1, 0, unit);
  longer.metadata_bytes = 65;
  wire::PartT of_other_member = part(1, 0, unit);
  of_other_member.extents.front() = wire::Extent(1, 1, 0, 0, unit);
  wire::PartT metadata_of_other_member = part(1, 0, unit);
  metadata_of_other_member.metadata.front() = wire::Extent(1, 1, 0, 0, 64);
  for (const wire::PartT& refused :
       {part(0, 0, unit), part(1, 4 * unit, unit), part(1, 7 * unit, 2 * unit), part(9, 0, unit), twice, elsewhere,
        longer, of_other_member, metadata_of_other_member}) {
    const auto taken = granted_.take(map_, layout_, 0, refused);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, ErrorCode::protocol);
    EXPECT_EQ(granted_.total(), 4 * unit);
  }
}

}  // namespace
}  // namespace forebay::server
