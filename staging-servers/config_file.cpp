// SPDX-License-Identifier: Apache-2.0
#include "config_file.h"

#include <type_traits>

#include <fmt/format.h>
// Version 3.3 asserts what it then reports as an error: a file with "[~" would end a program built with assertions.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include "base/device.h"

namespace forebay::server {
namespace {

constexpr std::uint64_t file_bytes_max = std::uint64_t{1} << 20;

template <class T>
Result<void> take(const toml::node& node, std::optional<T>& setting, const char* kind, const std::string& where) {
  const auto value = node.value_exact<std::conditional_t<std::is_integral_v<T>, std::int64_t, std::string>>();
  if (!value) return fail(ErrorCode::invalid_argument, fmt::format("the value must be {}", kind), where);
  if constexpr (std::is_unsigned_v<T>) {
    if (*value < 0) return fail(ErrorCode::invalid_argument, "the value must not be negative", where);
  }
  setting = static_cast<T>(*value);
  return {};
}

Result<void> take_setting(std::string_view name, const toml::node& node, ConfigFile& config, const std::string& where) {
  constexpr const char* text = "text in quotes";
  constexpr const char* number = "a whole number";
  if (name == "root") return take(node, config.root, text, where);
  if (name == "socket") return take(node, config.socket, text, where);
  if (name == "capacity_bytes") return take(node, config.capacity_bytes, number, where);
  if (name == "flush_interval_ms") return take(node, config.flush_interval_ms, number, where);
  if (name == "restart_grace_ms") return take(node, config.restart_grace_ms, number, where);
  if (name == "log_level") return take(node, config.log_level, text, where);
  return fail(ErrorCode::invalid_argument,
              "there is no such setting; there are: root, socket, capacity_bytes, flush_interval_ms, "
              "restart_grace_ms, log_level",
              where);
}

std::string place(const std::string& path, const toml::source_region& source) {
  return fmt::format("{}, line {}", path, source.begin.line);
}

}  // namespace

Result<ConfigFile> parse_config(std::string_view text, const std::string& path) {
  ConfigFile config;
  try {
    const toml::table table = toml::parse(text);
    for (const auto& [key, node] : table) {
      const std::string where = fmt::format("{}, setting {}", place(path, key.source()), key.str());
      if (auto taken = take_setting(key.str(), node, config, where); !taken) return fail(std::move(taken.error()));
    }
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::invalid_argument, fmt::format("this is no TOML: {}", error.description()),
                place(path, error.source()));
  }
  return config;
}

Result<ConfigFile> read_config(const std::string& path) {
  auto file = posix_device().open(path, OpenMode::read);
  if (!file) return fail(std::move(file.error()));
  auto size = (*file)->size();
  if (!size) return fail(std::move(size.error()));
  if (*size > file_bytes_max)
    return fail(ErrorCode::invalid_argument, "this is too large for a configuration file", path);
  std::string text(*size, '\0');
  if (auto read = (*file)->read_at(0, std::as_writable_bytes(std::span(text))); !read)
    return fail(std::move(read.error()));
  return parse_config(text, path);
}

}  // namespace forebay::server
