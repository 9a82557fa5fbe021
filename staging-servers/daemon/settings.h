// SPDX-License-Identifier: Apache-2.0
// What forebayd can be told, by its command line or by a TOML file: one table, of which each row is one setting.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <forebay/result.h>

#include "daemon/server.h"

namespace forebay::server {

struct Settings {
  ServerOptions options;
  std::string control_encryption = "on";
  std::string log_level = "info";
};

/// Names of one setting, and where its value is kept.
struct Setting {
  const char* option;  ///< of the command line
  const char* name;    ///< in the file
  const char* help;
  std::variant<std::string*, std::int64_t*, std::optional<std::uint64_t>*> value;
};

/// All of them. They point into `settings`.
std::vector<Setting> settings_table(Settings& settings);

/// The names in the file, separated by commas.
std::string setting_names(std::span<const Setting> table);

/// Takes the values that the TOML text has, but for settings that were given elsewhere. Errors: invalid_argument, with
/// `path` and the line, for what is no TOML, for settings that do not exist, and for values that cannot be.
Result<void> take_settings(std::string_view text, const std::string& path, std::span<const Setting> table,
                           const std::function<bool(const Setting&)>& is_given);

/// The same of a file. Errors besides: not_found, permission_denied, io_error.
Result<void> read_settings(const std::string& path, std::span<const Setting> table,
                           const std::function<bool(const Setting&)>& is_given);

}  // namespace forebay::server
