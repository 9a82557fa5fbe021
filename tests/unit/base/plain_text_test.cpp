// SPDX-License-Identifier: Apache-2.0
#include "base/plain_text.h"

#include <string>

#include <gtest/gtest.h>

#include "base/log.h"

namespace forebay {
namespace {

TEST(PlainText, text_stays_as_it_is) {
  for (const char* text : {"", "ValueError: no", "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x8C\x8A"})
    EXPECT_EQ(plain_text(text, 64), text);
}

TEST(PlainText, becomes_one_line) {
  EXPECT_EQ(plain_text("a\nb\tc\x1b[31m\x7f", 64), "a b c [31m ");
  EXPECT_EQ(plain_text("a\xE2\x80\xA8"
                       "b\xC2\x85"
                       "c",
                       64),
            "a b c");
}

TEST(PlainText, bytes_that_are_no_text_are_marked) {
  EXPECT_EQ(plain_text("\xFF\x80x", 64), "??x");
  EXPECT_EQ(plain_text("\xC3", 64), "?");
  EXPECT_EQ(plain_text("\xC0\xAF", 64), "??") << "longer than it need be";
  EXPECT_EQ(plain_text("\xED\xA0\x80", 64), "???") << "half of a pair";
  EXPECT_EQ(plain_text("\xF8\x88\x80\x80\x80", 64), "?????");
}

TEST(PlainText, is_cut_between_characters) {
  EXPECT_EQ(plain_text("abcdef", 6), "abcdef");
  EXPECT_EQ(plain_text("abcdefg", 6), "abc...");
  EXPECT_EQ(plain_text("ab\xE2\x82\xAC"
                       "defg",
                       6),
            "ab...");
  EXPECT_EQ(plain_text(std::string(100'000, '\xFF'), 256).size(), 256U);
}

TEST(VisibleText, shows_what_would_move_the_cursor_or_turn_text) {
  for (const char* text : {"", "reservation res: C:\\x", "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x8C\x8A"})
    EXPECT_EQ(visible_text(text), text);
  EXPECT_EQ(visible_text("a\nb\tc\x1b[31m\x7f"), R"(a\x0ab\x09c\x1b[31m\x7f)");
  EXPECT_EQ(visible_text("\xC2\x9B"
                         "31m\xE2\x80\xAE"
                         "cod\xE2\x81\xA6\xEF\xBB\xBF\xD8\x9C"),
            R"(\x9b31m\u202ecod\u2066\ufeff\u061c)");
  EXPECT_EQ(visible_text("\xFF\xC3"), R"(\xff\xc3)");
}

TEST(VisibleText, lines_of_the_log_are_one_line_each) {
  ::testing::internal::CaptureStderr();
  log::set_level(log::Level::info);
  log::info("user {} wrote {}", 5, "x\n2026-01-01T00:00:00.000 error forged\x1b[2J");
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(written.ends_with(" info user 5 wrote x\\x0a2026-01-01T00:00:00.000 error forged\\x1b[2J\n")) << written;
}

}  // namespace
}  // namespace forebay
