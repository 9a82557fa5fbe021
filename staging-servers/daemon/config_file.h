// SPDX-License-Identifier: Apache-2.0
// forebayd's configuration file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <forebay/result.h>

namespace forebay::server {

/// What the file says; what it does not mention is unset.
struct ConfigFile {
  std::optional<std::string> root;
  std::optional<std::string> socket;
  std::optional<std::string> listen;
  std::optional<std::string> fabric;
  std::optional<std::string> control_encryption;
  std::optional<std::string> files_image;
  std::optional<std::uint64_t> capacity_bytes;
  std::optional<std::int64_t> flush_interval_ms;
  std::optional<std::int64_t> restart_grace_ms;
  std::optional<std::string> log_level;
};

/// The settings in a file's text: of TOML, what these settings need. One to a line, texts in one pair of quotes,
/// decimal numbers, comments. invalid_argument, with the line, for anything else, for settings that do not exist or
/// stand there twice, and for values that cannot be. `path` is for the messages.
Result<ConfigFile> parse_config(std::string_view text, const std::string& path);

/// The same of a file. Errors besides: not_found, permission_denied, io_error.
Result<ConfigFile> read_config(const std::string& path);

}  // namespace forebay::server
