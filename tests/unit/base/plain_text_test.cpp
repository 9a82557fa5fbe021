// SPDX-License-Identifier: Apache-2.0
#include "base/plain_text.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace forebay
