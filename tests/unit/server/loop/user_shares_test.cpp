// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/loop/user_shares.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

TEST(PlaceShares, one_may_have_nearly_all_and_the_rest_is_for_users_who_have_few) {
  PlaceShares places(800);
  std::size_t taken = 0;
  while (places.take(1001)) ++taken;
  EXPECT_EQ(taken, 700U);
  for (std::size_t i = 0; i < PlaceShares::few; ++i) EXPECT_TRUE(places.take(1002)) << i;
  EXPECT_FALSE(places.take(1002));
  EXPECT_TRUE(places.take(1003));
  places.give_back(1001);
  EXPECT_FALSE(places.take(1001));
  for (int i = 0; i < 10; ++i) places.give_back(1001);
  EXPECT_TRUE(places.take(1001));
}

TEST(PlaceShares, of_very_few_places_none_is_kept_back) {
  EXPECT_TRUE(PlaceShares::may_take(3, 2, 2));
  EXPECT_FALSE(PlaceShares::may_take(3, 3, 0));
  EXPECT_TRUE(PlaceShares::may_take(512, 448, 7));
  EXPECT_FALSE(PlaceShares::may_take(512, 448, 256));
}

TEST(PlaceShares, there_are_no_more_than_all_but_for_those_who_repair) {
  PlaceShares places(2);
  EXPECT_TRUE(places.take(1001));
  EXPECT_TRUE(places.take(1002));
  EXPECT_FALSE(places.take(1003));
  places.take_anyway(0);
  EXPECT_EQ(places.taken(), 3U);
  places.give_back(0);
  places.give_back(1001);
  EXPECT_TRUE(places.take(1003));
}

TEST(ByteShares, however_many_users_there_are_something_is_left) {
  ByteShares bytes(1024);
  EXPECT_TRUE(bytes.change(1001, 0, 512));
  EXPECT_FALSE(bytes.change(1001, 512, 513));
  EXPECT_TRUE(bytes.change(1001, 513, 512));
  EXPECT_TRUE(bytes.change(1002, 0, 256));
  EXPECT_FALSE(bytes.change(1002, 256, 257));
  EXPECT_TRUE(bytes.change(1002, 257, 256));
  EXPECT_TRUE(bytes.change(1003, 0, 128));
  EXPECT_TRUE(bytes.change(1001, 512, 0));
  EXPECT_EQ(bytes.held(), 384U);
}

}  // namespace
}  // namespace forebay::server
