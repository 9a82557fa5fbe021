// SPDX-License-Identifier: Apache-2.0
// The settings: what a file sets, and what is refused.
#include "staging-servers/daemon/settings.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

Result<Settings> settings_of(std::string_view text) {
  Settings settings;
  const auto table = settings_table(settings);
  RETURN_IF_ERROR(take_settings(text, "etc/forebay.toml", table, [](const Setting&) { return false; }));
  return settings;
}

TEST(Settings, take_what_the_file_mentions) {
  const auto settings = settings_of("root = '/ssd/forebay'  # a comment\ncapacity_bytes = 2_147_483_648\n");
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(settings->options.root, "/ssd/forebay");
  EXPECT_EQ(settings->options.capacity_bytes, 2147483648U);
  EXPECT_EQ(settings->control_encryption, "on");
  EXPECT_EQ(settings->options.socket_path, "");
  EXPECT_EQ(settings_of("control_encryption = 'off'")->control_encryption, "off");
}

TEST(Settings, each_can_be_in_the_file) {
  Settings settings;
  for (const Setting& setting : settings_table(settings)) {
    const bool is_text = std::holds_alternative<std::string*>(setting.value);
    const auto taken = settings_of(std::string(setting.name) + (is_text ? " = 'x'" : " = 7"));
    EXPECT_TRUE(taken) << taken.error().message();
  }
}

TEST(Settings, of_the_command_line_go_before_the_file) {
  Settings settings;
  settings.log_level = "debug";
  const auto table = settings_table(settings);
  const auto taken = take_settings("log_level = 'error'\nrestart_grace_ms = 5\n", "f", table,
                                   [](const Setting& setting) { return std::string("--log-level") == setting.option; });
  ASSERT_TRUE(taken) << taken.error().message();
  EXPECT_EQ(settings.log_level, "debug");
  EXPECT_EQ(settings.options.restart_grace_ms, 5);
}

TEST(Settings, texts_and_numbers_mean_what_they_mean_in_toml) {
  const auto settings = settings_of(
      "# of a node\r\n\r\n  root=\"a \\\"b\\\\ # \u00e9\"\r\n\tsocket = 'c:\\d' # here\n"
      "restart_grace_ms = +60_000\nflush_interval_ms = -1\ncapacity_bytes = 0xff\nfiles_image = \"\"\"xfs\"\"\"\n"
      "files_groups = '5000-6999'");
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(settings->options.root, "a \"b\\ # \u00e9");
  EXPECT_EQ(settings->options.socket_path, "c:\\d");
  EXPECT_EQ(settings->options.restart_grace_ms, 60'000);
  EXPECT_EQ(settings->options.flush_interval_ms, -1);
  EXPECT_EQ(settings->options.capacity_bytes, 255U);
  EXPECT_EQ(settings->options.files_image, "xfs");
  EXPECT_EQ(settings->options.files_groups, "5000-6999");
}

TEST(Settings, letters_of_all_alphabets_follow_a_joined_line) {
  const auto settings = settings_of("root = \"\"\"a \\ \n \t\n  \u00e9\u0103\u0431\u4e2d\"\"\"");
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(settings->options.root, "a \u00e9\u0103\u0431\u4e2d");
}

TEST(Settings, what_a_file_cannot_mean_is_refused_with_its_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"\ncapacity = 5", "line 2, setting capacity"},  // it is capacity_bytes
      {"capacity_bytes = '2GiB'", "a whole number"},
      {"capacity_bytes = 1.5", "a whole number"},
      {"capacity_bytes = -1", "negative"},
      {"capacity_bytes = 99999999999999999999", "line 1"},
      {"capacity_bytes = 1__0", "not TOML"},
      {"capacity_bytes = 007", "not TOML"},
      {"capacity_bytes =", "not TOML"},
      {"capacity_bytes", "not TOML"},
      {"root = 5", "text in quotes"},
      {"root = \"a\\u0000b\"", "zero byte"},
      {"root = 'a", "not TOML"},
      {"root = 'a' 'b'", "not TOML"},
      {"root = \"\\ssd\"", "not TOML"},
      {"[root]\nx = 1", "text in quotes"},
      {"[server]\nroot = 'a'", "setting server"},
      {"log_level = [1]", "text in quotes"},
      {"root = 'a'\nroot = 'b'", "line 2"},
      {"\n\nroot = /ssd", "line 3"},
      {"[~", "not TOML"},
      {"\u00e9 = 1", "a character outside ASCII stands outside quotes"},
      {"[\u045d[", "a character outside ASCII stands outside quotes"},
      {"root = \"\"\"a\"\"\"\"\"\u00d7", "a character outside ASCII stands outside quotes"},
      {"root = '\u00d7' \u00d7", "a character outside ASCII stands outside quotes"},
      {"root = '''\u00d7\n\u00d7'''\u00d7", "line 2"},
      {"root = \"\"\"a\\\u00e9\"\"\"", "not TOML"},
      {"a = [66(77\"1930\u01e81061291", "not TOML"},
  };
  for (const auto& [text, named] : cases) {
    const auto settings = settings_of(text);
    ASSERT_FALSE(settings) << text;
    EXPECT_EQ(settings.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(settings.error().message().find(named), std::string::npos) << settings.error().message();
    EXPECT_NE(settings.error().message().find("etc/forebay.toml"), std::string::npos);
  }
}

}  // namespace
}  // namespace forebay::server
