// SPDX-License-Identifier: Apache-2.0
// Logging of the daemons. The client library never logs: it runs inside other people's processes.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include <forebay/result.h>

namespace forebay::log {

enum class Level : int { debug = 0, info = 1, warning = 2, error = 3, off = 4 };

/// Takes "debug", "info", "warning" or "error".
Result<Level> parse_level(std::string_view text);
void set_level(Level level);
/// One line, whatever names of others it has: visible_text().
void write(Level level, const std::string& line);

template <class... Arguments>
void debug(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(Level::debug, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(Level::info, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(Level::warning, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(Level::error, fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace forebay::log
