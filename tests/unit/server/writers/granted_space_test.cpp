// SPDX-License-Identifier: Apache-2.0
// The space of a rank: what a client says of a part is believed only as far as it was granted.
#include "staging-servers/writers/granted_space.h"

#include <functional>
#include <memory>

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

  /// A set in one extent of segment 1, whose last page is half full.
  static std::unique_ptr<wire::AttributeSetT> set_at(std::uint64_t step, std::uint64_t offset, std::uint64_t length) {
    auto set = std::make_unique<wire::AttributeSetT>();
    set->step = step;
    set->extents.emplace_back(1, 0, 0, offset, length);
    set->bytes = length - grain / 2;
    set->crc = 17;
    return set;
  }

  const SpaceMap map_{4, 8 * grain};
  const SegmentLayout layout_{{2, 2}};
  GrantedSpace granted_;
};

TEST_F(GrantedSpaceTest, goes_into_a_part_and_comes_back_from_it) {
  const auto taken = granted_.take(map_, layout_, 3, part(1, grain, 2 * grain), nullptr);
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
  wire::PartT metadata_twice = part(1, 0, grain);
  metadata_twice.metadata.emplace_back(1, 0, 0, 32, 64);
  metadata_twice.metadata_bytes = 128;
  wire::PartT of_other_member = part(1, 0, grain);
  of_other_member.extents.front() = wire::Extent(1, 1, 0, 0, grain);
  wire::PartT metadata_of_other_member = part(1, 0, grain);
  metadata_of_other_member.metadata.front() = wire::Extent(1, 1, 0, 0, 64);
  for (const wire::PartT& refused :
       {part(0, 0, grain), part(1, 4 * grain, grain), part(1, 7 * grain, 2 * grain), part(9, 0, grain), twice,
        elsewhere, longer, metadata_twice, of_other_member, metadata_of_other_member}) {
    const auto taken = granted_.take(map_, layout_, 0, refused, nullptr);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, ErrorCode::protocol);
    EXPECT_EQ(granted_.total(), 4 * grain);
  }
}

TEST_F(GrantedSpaceTest, goes_into_an_attribute_set_beside_the_part) {
  wire::PartT bringing = part(1, 0, grain);
  bringing.number = 7;
  bringing.attributes = set_at(7, grain, 2 * grain);
  bringing.carried = {wire::Extent(1, 0, 0, 2 * grain, 64)};
  const auto taken = granted_.take(map_, layout_, 0, bringing, nullptr);
  ASSERT_TRUE(taken) << taken.error().message();
  EXPECT_EQ(granted_.total(), grain);
  EXPECT_EQ(taken->extents.size(), 1U);
  ASSERT_TRUE(taken->attributes);
  EXPECT_EQ(taken->attributes->step, 7U);

  wire::PartT referring = part(1, 3 * grain, grain);
  referring.number = 8;
  referring.attributes = set_at(7, grain, 2 * grain);
  const auto refused = granted_.take(map_, layout_, 0, referring, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(granted_.total(), grain);
  const auto next = granted_.take(map_, layout_, 0, referring, taken->attributes.get());
  ASSERT_TRUE(next) << next.error().message();
  EXPECT_EQ(granted_.total(), 0U);
}

TEST_F(GrantedSpaceTest, stays_as_it_is_when_an_attribute_set_is_refused) {
  const journal::AttributeSetT held = [&] {
    GrantedSpace granted;
    granted.add(Extent{1, 0, 2 * grain});
    wire::PartT first = part(1, 0, grain);
    first.attributes = set_at(0, grain, grain);
    return *granted.take(map_, layout_, 0, first, nullptr)->attributes;
  }();
  const auto with = [&](const std::function<void(wire::AttributeSetT&)>& change, std::uint64_t step) {
    wire::PartT changed = part(1, 0, grain);
    changed.step = 3;
    changed.attributes = step == 3 ? set_at(3, 2 * grain, grain) : set_at(step, grain, grain);
    change(*changed.attributes);
    return changed;
  };
  const auto same = [](wire::AttributeSetT&) {};
  ASSERT_TRUE(GrantedSpace(granted_).take(map_, layout_, 0, with(same, 3), &held));
  ASSERT_TRUE(GrantedSpace(granted_).take(map_, layout_, 0, with(same, 0), &held));
  const auto place = [](std::uint32_t segment, std::uint16_t member, std::uint64_t offset, std::uint64_t length) {
    return [=](wire::AttributeSetT& set) { set.extents = {wire::Extent(segment, member, 0, offset, length)}; };
  };
  for (const wire::PartT& refused : {
           with(place(1, 0, 0, grain), 3),              // the part's own space
           with(place(1, 0, 4 * grain, grain), 3),      // not granted
           with(place(2, 1, 0, grain), 3),              // another's segment
           with(place(1, 1, 2 * grain, grain), 3),      // of another member
           with(place(1, 0, 2 * grain, 2 * grain), 3),  // more than the table needs
           with([](auto& set) { set.bytes = grain + 1; }, 3),
           with([](auto& set) { set.bytes = 0; }, 3),
           with([](auto& set) { set.bytes = ~std::uint64_t{0}; }, 3),
           with([](auto& set) { set.extents.clear(); }, 3),
           with([](auto& set) { set.extents.push_back(set.extents[0]); }, 3),
           with(same, 2),
           with(same, 4),  // of steps that brought none
           with([](auto& set) { ++set.crc; }, 0),
           with([](auto& set) { --set.bytes; }, 0),
           with(place(1, 0, 2 * grain, grain), 0),
           with(place(1, 1, grain, grain), 0),
       }) {
    const auto taken = granted_.take(map_, layout_, 0, refused, &held);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, ErrorCode::protocol);
    EXPECT_EQ(granted_.total(), 4 * grain);
  }
  // The metadata of a part lies in the part's space.
  wire::PartT in_set = with(same, 3);
  in_set.metadata.front() = wire::Extent(1, 0, 0, 2 * grain, 64);
  EXPECT_FALSE(granted_.take(map_, layout_, 0, in_set, &held));
}

}  // namespace
}  // namespace forebay::server
