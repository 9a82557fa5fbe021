// SPDX-License-Identifier: Apache-2.0
// Reservations over several servers: their layout, their record, and what each server has of them on disk.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "storage/reservation_check.h"
#include "tests/unit/storage/reservation_fixture.h"

namespace forebay::storage {
namespace {

constexpr std::uint64_t one_mebibyte = std::uint64_t{1} << 20;

std::string root_of(std::size_t member) {
  return fmt::format("0b7c9f9e-52a5-4c3e-9d0c-{:012x}", member);
}

/// Over several servers, which give what a layout for these bytes says.
reservation::ReservationT record_over(const std::vector<std::uint64_t>& member_bytes, std::uint64_t files_bytes = 0) {
  const auto layout = *layout_for(member_bytes, files_bytes);
  auto record = reservation_record();
  record.capacity_bytes = layout.capacity_bytes;
  record.files_bytes = layout.files_bytes;
  record.segment_bytes = layout.segment_bytes;
  record.stripe_bytes = layout.stripe_bytes;
  record.journal_reserve_bytes = layout.journal_reserve_bytes;
  record.members.clear();
  for (std::size_t number = 0; number < member_bytes.size(); ++number) {
    record.members.push_back(std::make_unique<reservation::MemberT>());
    record.members.back()->server = root_of(number);
    record.members.back()->segments = layout.segments[number];
    record.members.back()->capacity_bytes = layout.member_bytes[number];
  }
  return record;
}

TEST(MembersLayout, gives_each_server_at_least_four_segments_within_what_it_has) {
  for (const std::size_t members : {2U, 3U, 7U, 64U}) {
    for (std::uint64_t bytes = capacity_bytes_min; bytes < (std::uint64_t{1} << 40); bytes = bytes * 7 / 3 + 54321) {
      std::vector<std::uint64_t> given(members, bytes);
      given[1] = capacity_bytes_min;  // a server that was nearly full
      const auto layout = layout_for(given, 0);
      ASSERT_TRUE(layout) << layout.error().message();
      EXPECT_TRUE(std::has_single_bit(layout->segment_bytes));
      EXPECT_GE(layout->segment_bytes, one_mebibyte);
      EXPECT_TRUE(std::has_single_bit(layout->stripe_bytes));
      EXPECT_LE(layout->stripe_bytes, std::min(layout->segment_bytes, 8 * one_mebibyte));
      for (std::size_t number = 0; number < members; ++number) {
        const std::uint64_t kept = number == 0 ? layout->journal_reserve_bytes : 0;
        EXPECT_GE(layout->segments[number], 4U);
        EXPECT_LE(layout->segments[number] * layout->segment_bytes + kept, layout->member_bytes[number]);
        EXPECT_GE(layout->member_bytes[number], given[number]);
      }
      EXPECT_EQ(std::accumulate(layout->member_bytes.begin(), layout->member_bytes.end(), std::uint64_t{0}),
                layout->capacity_bytes);
    }
  }
}

TEST(MembersLayout, is_the_same_for_the_same_list) {
  const std::vector<std::uint64_t> given = {100 * one_mebibyte, 90 * one_mebibyte + 1, 8 * one_mebibyte};
  const auto one = layout_for(given, one_mebibyte);
  const auto other = layout_for(given, one_mebibyte);
  EXPECT_EQ(one->segments, other->segments);
  EXPECT_EQ(one->segment_bytes, other->segment_bytes);
  EXPECT_EQ(one->journal_reserve_bytes, other->journal_reserve_bytes);
}

TEST(MembersLayout, a_server_that_gives_too_little_and_too_much_in_all_are_refused) {
  const std::uint64_t most = std::uint64_t{256} << 40;
  for (const std::vector<std::uint64_t>& given : {std::vector<std::uint64_t>{8 * one_mebibyte, 8 * one_mebibyte - 1},
                                                  {0, 8 * one_mebibyte},
                                                  {most, 8 * one_mebibyte},
                                                  {~std::uint64_t{0}, ~std::uint64_t{0}}}) {
    EXPECT_EQ(layout_for(given, 0).error().code, ErrorCode::invalid_argument) << given[0];
  }
}

TEST(MembersLayout, numbers_count_through_the_members) {
  const SegmentLayout layout({3, 2, 4});
  EXPECT_EQ(layout.segment_count(), 9U);
  EXPECT_TRUE(layout.has_others());
  EXPECT_EQ(layout.segments_of(0), std::pair(0U, 3U));
  EXPECT_EQ(layout.segments_of(1), std::pair(3U, 5U));
  EXPECT_EQ(layout.segments_of(2), std::pair(5U, 9U));
  EXPECT_EQ(layout.segments_of(3), std::pair(9U, 9U));
  for (std::uint16_t member = 0; member < 3; ++member) {
    const auto [begin, end] = layout.segments_of(member);
    for (std::uint32_t segment = begin; segment < end; ++segment) EXPECT_EQ(layout.member_of(segment), member);
  }
  EXPECT_FALSE(layout.member_of(9));
}

TEST(MembersRecord, one_that_the_layout_made_is_sane_and_counts_on_each_server_what_it_gives) {
  const auto record = record_over({100 * one_mebibyte, 90 * one_mebibyte, 8 * one_mebibyte}, 5 * one_mebibyte);
  ASSERT_TRUE(check_reservation(record));
  EXPECT_EQ(granted_bytes(record, 0), 105 * one_mebibyte);
  EXPECT_EQ(granted_bytes(record, 1), 90 * one_mebibyte);
  EXPECT_EQ(granted_bytes(record, 2), 8 * one_mebibyte);
  EXPECT_EQ(granted_bytes(record, 3), 0U);
  EXPECT_EQ(member_of_root(record, root_of(2)), 2);
  EXPECT_FALSE(member_of_root(record, root_of(3)));
}

TEST(MembersRecord, as_many_members_as_may_be_are_one_less_than_too_many) {
  EXPECT_TRUE(check_reservation(record_over(std::vector<std::uint64_t>(members_max, capacity_bytes_min))));
  EXPECT_EQ(
      check_reservation(record_over(std::vector<std::uint64_t>(members_max + 1, capacity_bytes_min))).error().code,
      ErrorCode::invalid_argument);
}

TEST(MembersRecord, members_that_cannot_be_are_refused) {
  const auto refuse = [&](const std::function<void(reservation::ReservationT&)>& change) {
    auto record = record_over({32 * one_mebibyte, 32 * one_mebibyte});
    change(record);
    const auto checked = check_reservation(record);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
  };
  refuse([](auto& r) { r.members[1]->server = r.members[0]->server; });
  refuse([](auto& r) { r.members[0]->server = ""; });
  refuse([](auto& r) { r.members[1]->server = "../.."; });
  refuse([](auto& r) { r.members[1]->segments = 0; });
  refuse([](auto& r) { r.members[1]->segments = ~0U; });
  refuse([](auto& r) { ++r.members[1]->segments; });
  refuse([](auto& r) { r.members[1]->capacity_bytes = ~std::uint64_t{0}; });
  refuse([](auto& r) { r.capacity_bytes += one_mebibyte; });
  refuse([](auto& r) { r.capacity_bytes = 0, r.files_bytes = one_mebibyte; });
  refuse([](auto& r) { r.journal_reserve_bytes = r.members[0]->capacity_bytes; });
}

TEST(MembersOnDisk, each_server_has_its_own_segments_and_the_same_record) {
  const auto record = record_over({16 * one_mebibyte, 8 * one_mebibyte, 8 * one_mebibyte}, one_mebibyte);
  const SegmentLayout layout = layout_of(record);
  for (std::uint16_t member = 0; member < 3; ++member) {
    const testing::TemporaryDirectory root = testing::TemporaryDirectory::in_memory();
    const testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
    testing::FaultyDevice device{limbo.path()};
    auto store = std::move(*ReservationStore::open(device, root.path()));
    const auto created = store->create(record, member);
    ASSERT_TRUE(created) << created.error().message();
    EXPECT_TRUE(store->create(record, member));
    std::vector<std::string> own;
    const auto [begin, end] = layout.segments_of(member);
    for (std::uint32_t segment = begin; segment < end; ++segment) own.push_back(std::to_string(segment));
    std::ranges::sort(own);
    EXPECT_EQ(names_in(store->directory(record.id) + "/segments"), own);
    EXPECT_TRUE(names_in(store->streams_directory(record.id)).empty());
    std::vector<std::string> problems;
    std::vector<std::string> unread;
    const auto loaded = store->load(problems, unread);
    ASSERT_EQ(loaded->size(), 1U);
    EXPECT_EQ(bytes_of_record(loaded->front()), bytes_of_record(record));
    EXPECT_TRUE(problems.empty());
    EXPECT_TRUE(store->retire(record.id));
    while (!*store->purge_quarantine(64)) {
    }
    EXPECT_TRUE(names_in(root.path("reservations")).empty());
    EXPECT_TRUE(names_in(root.path("quarantine")).empty());
  }
}

}  // namespace
}  // namespace forebay::storage
