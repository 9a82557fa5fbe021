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
