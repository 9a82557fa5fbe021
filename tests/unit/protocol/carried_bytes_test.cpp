// SPDX-License-Identifier: Apache-2.0
#include "protocol/carried_bytes.h"

#include <limits>

#include <gtest/gtest.h>

namespace forebay::protocol {
namespace {

constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();

ErrorCode code_of(const std::vector<wire::Extent>& places, std::size_t bytes) {
  const std::vector<std::uint8_t> carried(bytes, 1);
  const auto pieces = carried_pieces(places, carried);
  return pieces ? ErrorCode{} : pieces.error().code;
}

TEST(CarriedBytesTest, nothing_is_carried_by_nothing) {
  const auto pieces = carried_pieces({}, {});
  ASSERT_TRUE(pieces);
  EXPECT_TRUE(pieces->empty());
}

TEST(CarriedBytesTest, each_extent_has_its_bytes_in_order) {
  const std::vector<std::uint8_t> bytes{1, 2, 3, 4, 5};
  const std::vector<wire::Extent> places{{7, 0, 0, 4096, 2}, {3, 0, 0, 0, 3}};
  const auto pieces = carried_pieces(places, bytes);
  ASSERT_TRUE(pieces);
  ASSERT_EQ(pieces->size(), 2u);
  EXPECT_EQ((*pieces)[0].place.segment(), 7u);
  EXPECT_EQ((*pieces)[0].bytes.size(), 2u);
  EXPECT_EQ((*pieces)[1].bytes.size(), 3u);
  EXPECT_EQ((*pieces)[1].bytes.front(), std::byte{3});
}

TEST(CarriedBytesTest, zeros_at_the_end_are_left_out_and_restored) {
  const std::vector<std::uint8_t> whole{0, 1, 0, 0, 2, 0, 0, 0};
  const std::vector<wire::Extent> places{{0, 0, 0, 0, 4}, {0, 0, 0, 4096, 4}};
  std::vector<std::uint8_t> bytes = whole;
  drop_zeros(bytes);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{0, 1, 0, 0, 2}));
  restore_zeros(places, bytes);
  EXPECT_EQ(bytes, whole);
  std::vector<std::uint8_t> zeros(8);
  drop_zeros(zeros);
  EXPECT_TRUE(zeros.empty());
  restore_zeros(places, zeros);
  EXPECT_EQ(zeros.size(), 8u);
}

TEST(CarriedBytesTest, no_more_zeros_are_restored_than_a_message_carries) {
  std::vector<std::uint8_t> bytes{1};
  restore_zeros(std::vector<wire::Extent>{{0, 0, 0, 0, last}, {0, 0, 0, 0, last}}, bytes);
  EXPECT_EQ(bytes.size(), carried_bytes_max);
}

TEST(CarriedBytesTest, lengths_that_do_not_agree_are_refused) {
  EXPECT_EQ(code_of({{0, 0, 0, 0, 64}}, 63), ErrorCode::protocol);
  EXPECT_EQ(code_of({{0, 0, 0, 0, 64}}, 65), ErrorCode::protocol);
  EXPECT_EQ(code_of({{0, 0, 0, 0, 64}}, 0), ErrorCode::protocol);
  EXPECT_EQ(code_of({{0, 0, 0, 0, 0}}, 0), ErrorCode::protocol);
  EXPECT_EQ(code_of({}, 1), ErrorCode::protocol);
  EXPECT_EQ(code_of({{0, 0, 0, 0, last}, {0, 0, 0, 0, 65}}, 64), ErrorCode::protocol);
}

TEST(CarriedBytesTest, an_extent_without_an_end_is_refused) {
  EXPECT_EQ(code_of({{0, 0, 0, last - 8, 64}}, 64), ErrorCode::protocol);
}

TEST(CarriedBytesTest, more_than_the_limit_is_refused) {
  EXPECT_EQ(code_of({{0, 0, 0, 0, carried_bytes_max}}, carried_bytes_max), ErrorCode{});
  EXPECT_EQ(code_of({{0, 0, 0, 0, carried_bytes_max + 1}}, carried_bytes_max + 1), ErrorCode::protocol);
}

}  // namespace
}  // namespace forebay::protocol
