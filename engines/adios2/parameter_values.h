// SPDX-License-Identifier: Apache-2.0
// Reads the text of parameters. Names and choices compare without case, and '-' is the same as '_'. What does not parse
// throws std::invalid_argument that says what was expected.
#pragma once

#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <forebay/writer_options.h>

namespace forebay::engine {

/// The text in lower case, with '_' for '-': equal for names that mean the same.
std::string normalized(std::string_view text);

[[noreturn]] void expected(const std::string& what);

/// What the client's parsers give.
template <class T>
T parsed(Result<T> result) {
  if (!result) throw std::invalid_argument(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

template <class Integer>
Integer parse_integer(const std::string& text, const std::string& what) {
  return parsed(forebay::parse_integer<Integer>(text, what));
}

bool parse_bool(const std::string& text);

template <class Choice>
Choice parse_choice(const std::string& text, std::initializer_list<std::pair<std::string_view, Choice>> choices) {
  return parsed(forebay::parse_choice<Choice>(text, choices));
}

/// The candidate that `name` is most likely a misspelling of; empty if none is near.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace forebay::engine
