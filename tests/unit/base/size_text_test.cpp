// SPDX-License-Identifier: Apache-2.0
#include "base/size_text.h"

#include <limits>

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(SizeText, takes_the_largest_unit_that_leaves_at_least_one) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(std::uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(size_text(std::uint64_t{100} << 40), "100 TiB");
  EXPECT_EQ(size_text(2'000'000'000), "1.86 GiB");
  EXPECT_EQ(size_text(std::numeric_limits<std::uint64_t>::max()), "16384 PiB");
}

}  // namespace
}  // namespace forebay
