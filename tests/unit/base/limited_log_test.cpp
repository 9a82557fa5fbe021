// SPDX-License-Identifier: Apache-2.0
#include "base/limited_log.h"

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(LimitedLog, some_lines_come_at_once_and_then_one_a_minute_that_counts_the_others) {
  log::Limited lines;
  std::int64_t now = 1'000'000'000'000;
  std::uint32_t written = 0;
  for (int i = 0; i < 1000; ++i) written += lines.has_turn(now) ? 1 : 0;
  EXPECT_EQ(written, log::Limited::at_once_default);
  now += log::Limited::pause_default_ns;
  EXPECT_TRUE(lines.has_turn(now));
  EXPECT_EQ(lines.left_out(), " (980 more like this were left out)");
  EXPECT_FALSE(lines.has_turn(now));
  now += 100 * log::Limited::pause_default_ns;
  written = 0;
  for (int i = 0; i < 1000; ++i) written += lines.has_turn(now) ? 1 : 0;
  EXPECT_EQ(written, log::Limited::at_once_default);
}

}  // namespace
}  // namespace forebay
