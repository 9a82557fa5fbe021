// SPDX-License-Identifier: Apache-2.0
// Where the home of a reservation over several servers takes space: a writer's own server first, and room for metadata.
#include "tests/unit/server/space/space_fixture.h"

namespace forebay::server {
namespace {

/// Home and two other members, which are there, of 16 segments each.
class MembersSpaceTest : public SpaceTest {
 protected:
  static reservation::ReservationT record_of_three() {
    auto record = storage::reservation_record(storage::other_id, 16);
    record.members.front()->capacity_bytes = record.capacity_bytes;
    for (int other = 0; other < 2; ++other) {
      auto member = std::make_unique<reservation::MemberT>();
      member->server = std::string(other == 0 ? "1" : "2") + "b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d";
      member->segments = 16;
      member->capacity_bytes = 16 * record.segment_bytes;
      record.members.push_back(std::move(member));
      record.capacity_bytes += 16 * record.segment_bytes;
    }
    record.stripe_bytes = mib;
    return record;
  }

  void SetUp() override {
    SpaceTest::SetUp();
    const auto created = store_->create(of_three_);
    ASSERT_TRUE(created) << created.error().message();
    space_ = std::make_unique<ReservationSpace>(*loop_, device_, *store_, of_three_);
  }

  /// How much the members give of this, each by itself.
  std::map<std::uint16_t, std::uint64_t> taken(StatedStream& stream, std::uint64_t bytes, const SpacePlace& place) {
    std::map<std::uint16_t, std::uint64_t> by_member;
    const auto extents = space_->allocate(stream, stream.owner(), bytes, WhenFull::error, place);
    for (const Extent& extent : extents.value_or(std::vector<Extent>()))
      by_member[space_->segments().layout().member_of(extent.segment).value()] += extent.length;
    return by_member;
  }

  const reservation::ReservationT of_three_ = record_of_three();
};

TEST_F(MembersSpaceTest, a_writer_on_the_homes_node_gets_space_there_and_leaves_room_for_metadata) {
  StatedStream stream(*space_, 1);
  SpacePlace here;
  here.near = 0;
  SpacePlace metadata;
  metadata.at_home = true;
  EXPECT_EQ(taken(stream, 4 * mib, here), (std::map<std::uint16_t, std::uint64_t>{{0, 4 * mib}}));
  std::map<std::uint16_t, std::uint64_t> all{{0, 4 * mib}};
  for (int block = 1; block < 11; ++block)
    for (const auto& [member, bytes] : taken(stream, 4 * mib, here)) all[member] += bytes;
  // All that the others have, too, before the last of the home's.
  EXPECT_EQ(all[0] + all[1] + all[2], 44 * mib);
  EXPECT_LE(all[0], 14 * mib);
  EXPECT_EQ(taken(stream, mib, metadata), (std::map<std::uint16_t, std::uint64_t>{{0, mib}}));
}

}  // namespace
}  // namespace forebay::server
