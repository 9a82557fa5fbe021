// SPDX-License-Identifier: Apache-2.0
// Shares that were taken away do not use up the places of others.
#include "staging-servers/reservations/shares.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "storage/reservation_check.h"

namespace forebay::testing {
namespace {

using server::with_share;

// Of no user here.
constexpr std::uint32_t first_user = 4'000'000'000;

reservation::ReservationT full_record(Rights rights) {
  reservation::ReservationT record;
  record.name = "run1";
  record.owner_uid = 4'100'000'000;
  record.owner_gid = 4'100'000'000;
  for (std::uint32_t i = 0; i < storage::shares_max; ++i) {
    auto shared = with_share(record, {Share::Kind::user, first_user + i, rights});
    EXPECT_TRUE(shared.has_value());
    record = std::move(*shared);
  }
  EXPECT_EQ(record.shares.size(), storage::shares_max);
  return record;
}

bool has(const reservation::ReservationT& record, const Share& share) {
  for (const Share& known : server::shares_of(record))
    if (known.kind == share.kind && known.id == share.id && known.rights == share.rights) return true;
  return false;
}

TEST(Shares, those_that_give_something_are_counted) {
  const auto record = full_record(Rights::read);
  const auto more = with_share(record, {Share::Kind::group, 5, Rights::read});
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, ErrorCode::no_space);
  // One that is there can be changed.
  EXPECT_TRUE(with_share(record, {Share::Kind::user, first_user, Rights::write}).has_value());
}

TEST(Shares, a_group_that_lost_its_share_makes_room) {
  auto record = full_record(Rights::read);
  record.shares.pop_back();
  const auto lost = with_share(record, {Share::Kind::group, 5, Rights::none});
  ASSERT_TRUE(lost.has_value());
  const auto shared = with_share(*lost, {Share::Kind::user, 17, Rights::read});
  ASSERT_TRUE(shared.has_value());
  EXPECT_TRUE(has(*shared, {Share::Kind::user, 17, Rights::read}));
  EXPECT_FALSE(has(*shared, {Share::Kind::group, 5, Rights::none}));
  EXPECT_TRUE(has(*shared, {Share::Kind::user, first_user, Rights::read}));
}

TEST(Shares, the_owners_group_that_is_kept_out_stays_out) {
  auto record = full_record(Rights::read);
  record.shares.pop_back();
  const auto out = with_share(record, {Share::Kind::group, record.owner_gid, Rights::none});
  ASSERT_TRUE(out.has_value());
  EXPECT_FALSE(with_share(*out, {Share::Kind::user, 17, Rights::read}).has_value());
}

TEST(Shares, a_user_who_was_shut_out_stays_out_whoever_is_let_in_later) {
  auto record = full_record(Rights::none);
  EXPECT_FALSE(with_share(record, {Share::Kind::group, 5, Rights::write}).has_value());
  record.shares.pop_back();
  const auto shared = with_share(record, {Share::Kind::group, 5, Rights::write});
  ASSERT_TRUE(shared.has_value());
  EXPECT_TRUE(has(*shared, {Share::Kind::user, first_user, Rights::none}));
}

}  // namespace
}  // namespace forebay::testing
