// SPDX-License-Identifier: Apache-2.0
// Reads the text of parameters. Names and choices compare without case, and '-' is the same as '_'. What does not parse
// throws std::invalid_argument that says what was expected.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace forebay::engine {

/// The text in lower case, with '_' for '-': equal for names that mean the same.
std::string normalized(std::string_view text);

[[noreturn]] void expected(const std::string& what);

template <class Integer>
Integer parse_integer(const std::string& text, const std::string& what) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) expected(what);
  return value;
}

bool parse_bool(const std::string& text);

/// Seconds with fractions, as milliseconds; negative (for ever) becomes -1.
std::int64_t parse_seconds(const std::string& text);

template <class Choice, std::size_t size>
Choice parse_choice(const std::string& text, const std::array<std::pair<const char*, Choice>, size>& choices) {
  std::string names;
  for (const auto& [name, choice] : choices) {
    if (normalized(text) == normalized(name)) return choice;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  expected("one of " + names);
}

/// The candidate that `name` is most likely a misspelling of; empty if none is near.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace forebay::engine
