// SPDX-License-Identifier: Apache-2.0
// The configuration file: what it sets, and what is refused.
#include "staging-servers/daemon/config_file.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

TEST(ConfigFile, sets_what_it_mentions) {
  const auto config = parse_config("root = '/ssd/forebay'  # a comment\ncapacity_bytes = 2_147_483_648\n", "f");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->root, "/ssd/forebay");
  EXPECT_EQ(config->capacity_bytes, 2147483648U);
  EXPECT_EQ(parse_config("control_encryption = 'off'", "f")->control_encryption, "off");
  EXPECT_FALSE(config->control_encryption);
  EXPECT_FALSE(config->socket);
  EXPECT_FALSE(config->log_level);
}

TEST(ConfigFile, texts_and_numbers_mean_what_they_mean_in_toml) {
  const auto config = parse_config(
      "# of a node\r\n\r\n  root=\"a \\\"b\\\\ # \u00e9\"\r\n\tsocket = 'c:\\d' # here\n"
      "restart_grace_ms = +60_000\nflush_interval_ms = -1\ncapacity_bytes = 0\nfiles_image = \"xfs\"",
      "f");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->root, "a \"b\\ # \u00e9");
  EXPECT_EQ(config->socket, "c:\\d");
  EXPECT_EQ(config->restart_grace_ms, 60'000);
  EXPECT_EQ(config->flush_interval_ms, -1);
  EXPECT_EQ(config->capacity_bytes, 0U);
  EXPECT_EQ(config->files_image, "xfs");
}

TEST(ConfigFile, what_it_cannot_mean_is_refused_with_its_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"\ncapacity = 5", "line 2, setting capacity"},  // it is capacity_bytes
      {"capacity_bytes = '2GiB'", "a whole number"},
      {"capacity_bytes = 1.5", "a whole number"},
      {"capacity_bytes = -1", "negative"},
      {"capacity_bytes = 99999999999999999999", "a whole number"},
      {"capacity_bytes = 0xff", "a whole number"},
      {"capacity_bytes = 1__0", "a whole number"},
      {"capacity_bytes = 007", "a whole number"},
      {"capacity_bytes = +-7", "a whole number"},
      {"capacity_bytes =", "a whole number"},
      {"capacity_bytes", "name = value"},
      {"root = 5", "text in quotes"},
      {"root = 'a", "closing quote"},
      {"root = \"a\\\"", "closing quote"},
      {"root = 'a' 'b'", "text after the value"},
      {"root = \"\"\"a\"\"\"", "text after the value"},
      {"root = \"\\ssd\"", "escape"},
      {"[root]\nx = 1", "line 1"},
      {"log_level = [1]", "text in quotes"},
      {"root = 'a'\nroot = 'b'", "line 2"},
      {"\n\nroot = /ssd", "line 3"},
      {"[~", "name = value"},
      {"capacity_bytes = 76\u00e0", "a whole number"},
      {"\u00e9 = 1", "name = value"},
  };
  for (const auto& [text, named] : cases) {
    const auto config = parse_config(text, "etc/forebay.toml");
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(config.error().message().find(named), std::string::npos) << config.error().message();
    EXPECT_NE(config.error().message().find("etc/forebay.toml"), std::string::npos);
  }
}

}  // namespace
}  // namespace forebay::server
