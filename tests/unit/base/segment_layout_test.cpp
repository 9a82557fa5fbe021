// SPDX-License-Identifier: Apache-2.0
#include "base/segment_layout.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(SegmentLayout, the_member_follows_from_the_number) {
  const SegmentLayout layout({2, 0, 3});
  EXPECT_EQ(layout.member_of(0), 0);
  EXPECT_EQ(layout.member_of(1), 0);
  EXPECT_EQ(layout.member_of(2), 2);
  EXPECT_EQ(layout.member_of(4), 2);
  EXPECT_FALSE(layout.member_of(5));
  EXPECT_FALSE(layout.member_of(~std::uint32_t{0}));
}

TEST(SegmentLayout, numbers_of_segments_do_not_overflow) {
  const SegmentLayout layout({~std::uint32_t{0}, 5});
  EXPECT_EQ(layout.member_of(~std::uint32_t{0} - 1), 0);
  EXPECT_EQ(layout.member_of(~std::uint32_t{0}), 1);
}

TEST(SegmentLayout, one_member_has_all_where_nothing_is_told) {
  EXPECT_EQ(SegmentLayout().member_of(0), 0);
  EXPECT_EQ(SegmentLayout().member_of(~std::uint32_t{0}), 0);
}

}  // namespace
}  // namespace forebay
