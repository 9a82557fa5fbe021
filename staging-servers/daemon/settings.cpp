// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/device.h"
#include "base/return_error.h"

namespace {
/// Version 3.3 of the library asserts what some texts break, such as "[~".
struct AssertionFailed {};
}  // namespace

// The whole library is compiled into this file.
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : throw AssertionFailed())
#define TOML_EXCEPTIONS 1
#define TOML_HEADER_ONLY 1
// In functions that must not throw, a failed assertion ends the program, as it did before.
#pragma GCC diagnostic push
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wexceptions"
#else
#pragma GCC diagnostic ignored "-Wterminate"
#endif
#include <toml++/toml.h>
#pragma GCC diagnostic pop

namespace forebay::server {
namespace {

constexpr std::uint64_t file_bytes_max = std::uint64_t{1} << 20;

/// The line of the first character outside ASCII that stands outside quotes and comments, or 0. TOML has none there,
/// and toml++ 3.3 asks of U+00A1 to U+0499 whether they are spaces by code whose result is undefined.
std::size_t line_outside_ascii(std::string_view text) {
  std::size_t line = 1;
  std::string_view quotes;
  bool comment = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      comment = false;
      if (quotes.size() == 1) quotes = {};
    } else if (comment) {
      continue;
    } else if (!quotes.empty()) {
      if (c == '\\' && quotes.front() == '"') {
        if (text.substr(i + 1, 1) != "\n") ++i;
      } else if (text.substr(i).starts_with(quotes)) {
        i += quotes.size() - 1;
        // Text in three quotes may end with two of its own.
        for (int own = 0; quotes.size() == 3 && own < 2 && text.substr(i + 1, 1) == quotes.substr(0, 1); ++own) ++i;
        quotes = {};
      }
    } else if (c == '"' || c == '\'') {
      quotes = text.substr(i, text.substr(i + 1, 2) == std::string(2, c) ? 3 : 1);
      i += quotes.size() - 1;
    } else if (static_cast<unsigned char>(c) > 0x7f) {
      return line;
    } else {
      comment = c == '#';
    }
  }
  return 0;
}

/// Why the value cannot be that of the setting; empty: it was taken.
std::string take_value(const toml::node& node, const Setting& setting) {
  if (auto* const* text = std::get_if<std::string*>(&setting.value)) {
    const auto* value = node.as_string();
    if (value == nullptr) return "the value must be text in quotes";
    if (value->get().find('\0') != std::string::npos) return "the value must not contain a zero byte";
    **text = value->get();
    return {};
  }
  const auto* value = node.as_integer();
  if (value == nullptr) return "the value must be a whole number such as 500 or 2_147_483_648";
  if (auto* const* number = std::get_if<std::int64_t*>(&setting.value)) {
    **number = value->get();
    return {};
  }
  if (value->get() < 0) return "the value must not be negative";
  *std::get<std::optional<std::uint64_t>*>(setting.value) = static_cast<std::uint64_t>(value->get());
  return {};
}

}  // namespace

std::vector<Setting> settings_table(Settings& settings) {
  ServerOptions& options = settings.options;
  return {
      {"--root", "root", "Where reservations lie; default $FOREBAY_ROOT or the user's state directory", &options.root},
      {"--socket", "socket", "Path of the socket; default ROOT/forebayd.sock", &options.socket_path},
      {"--listen", "listen",
       "HOST:PORT, an address of this node, for clients on other nodes; without it no port is open", &options.listen},
      {"--pool-key", "pool_key", "File with the key of the pool of servers that this one belongs to; wants --listen",
       &options.pool_key},
      {"--fabric", "fabric",
       "Provider of libfabric (tcp, verbs, cxi, efa) for the data of clients that ask for it; opens ports",
       &options.fabric},
      {"--control-encryption", "control_encryption",
       "off: messages of clients on other nodes are not encrypted after their proof; default on",
       &settings.control_encryption},
      {"--files-image", "files_image",
       "xfs: files/ of each reservation is a file system of its own, as large as was granted; needs root",
       &options.files_image},
      {"--files-groups", "files_groups",
       "FIRST-LAST: group ids that nobody is in; one of them marks in access lists what was made in a reservation; "
       "default 2000000000-2147483646",
       &options.files_groups},
      {"--capacity", "capacity_bytes",
       "Bytes that may be handed out; default 80 % of the free space at the first start", &options.capacity_bytes},
      {"--flush-interval-ms", "flush_interval_ms",
       "How long a committed step may wait to become durable; negative: until somebody asks",
       &options.flush_interval_ms},
      {"--restart-grace-ms", "restart_grace_ms", "How long writers have to come back after a restart of the server",
       &options.restart_grace_ms},
      {"--log-level", "log_level", "debug, info, warning or error", &settings.log_level},
  };
}

std::string setting_names(std::span<const Setting> table) {
  std::string names;
  for (const Setting& setting : table) names += (names.empty() ? "" : ", ") + std::string(setting.name);
  return names;
}

Result<void> take_settings(std::string_view text, const std::string& path, std::span<const Setting> table,
                           const std::function<bool(const Setting&)>& is_given) {
  const auto at = [&path](const toml::source_region& place) {
    return fmt::format("{}, line {}", path, place.begin.line);
  };
  if (const std::size_t line = line_outside_ascii(text); line != 0)
    return fail(ErrorCode::invalid_argument, "this is not TOML: a character outside ASCII stands outside quotes",
                fmt::format("{}, line {}", path, line));
  toml::table parsed;
  try {
    parsed = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::invalid_argument, "this is not TOML: " + std::string(error.description()),
                at(error.source()));
  } catch (const AssertionFailed&) {
    return fail(ErrorCode::invalid_argument, "this is not TOML: a key or a value is malformed", path);
  }
  for (const auto& [key, node] : parsed) {
    const std::string where = at(node.source()) + ", setting " + std::string(key.str());
    const auto setting =
        std::ranges::find_if(table, [&key = key](const Setting& known) { return key.str() == known.name; });
    if (setting == table.end()) {
      return fail(ErrorCode::invalid_argument, "there is no such setting; there are: " + setting_names(table), where);
    }
    if (is_given(*setting)) continue;
    if (std::string problem = take_value(node, *setting); !problem.empty())
      return fail(ErrorCode::invalid_argument, std::move(problem), where);
  }
  return {};
}

Result<void> read_settings(const std::string& path, std::span<const Setting> table,
                           const std::function<bool(const Setting&)>& is_given) {
  ASSIGN_OR_RETURN(const auto file, posix_device().open(path, OpenMode::read));
  ASSIGN_OR_RETURN(const std::uint64_t size, file->size());
  if (size > file_bytes_max)
    return fail(ErrorCode::invalid_argument, "this is too large for a configuration file", path);
  std::string text(size, '\0');
  RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return take_settings(text, path, table, is_given);
}

}  // namespace forebay::server
