// SPDX-License-Identifier: Apache-2.0
// A writer's options as users give them: one table of names, defaults, meanings and parsers. Python's forebay.open, the
// plugin's parameters and their page in the docs come from it, so that a new option is a field of WriterOptions and a
// row. Also the parsers, for options of other kinds.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <forebay/result.h>
#include <forebay/writer.h>

namespace forebay {

/// An option that is the same for all ranks. (Rank, ranks and group come from the launcher where nobody gives them.)
struct WriterOption {
  std::string_view name;       ///< keyword in Python: "block_timeout"
  std::string_view parameter;  ///< in configuration files, and after FOREBAY_ in the environment: "BlockTimeoutSecs"
  std::string_view values;     ///< what may be written: "seconds"
  std::string_view default_text;
  std::string_view meaning;  ///< for the docs
  /// Stores what `text` says. invalid_argument: what was expected instead.
  Result<void> (*set)(WriterOptions& options, std::string_view text);
};

/// All of them, in the order of the docs.
std::span<const WriterOption> writer_options() noexcept;

/// The row of a name as Python writes it; null without one.
const WriterOption* find_writer_option(std::string_view name) noexcept;

/// true, yes, on, 1 and their opposites, in any case.
Result<bool> parse_bool(std::string_view text);

/// Seconds with fractions, as milliseconds rounded up; negative ones, which mean for ever, are -1.
Result<std::int64_t> parse_seconds(std::string_view text);

/// An integer and nothing else; `expected` says what, for the error: "a number from 0".
template <class Integer>
Result<Integer> parse_integer(std::string_view text, std::string_view expected) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!text.empty() && error == std::errc{} && end == text.data() + text.size()) return value;
  return fail(ErrorCode::invalid_argument, "expected " + std::string(expected));
}

/// True for the same word in any case, with '-' and '_' or without: drop-oldest, drop_oldest, DropOldest.
bool is_same_word(std::string_view left, std::string_view right) noexcept;

/// One of some words.
template <class Choice>
Result<Choice> parse_choice(std::string_view text, std::initializer_list<std::pair<std::string_view, Choice>> choices) {
  std::string expected;
  for (const auto& [word, choice] : choices) {
    if (is_same_word(text, word)) return choice;
    expected += (expected.empty() ? "expected one of " : ", ") + std::string(word);
  }
  return fail(ErrorCode::invalid_argument, expected);
}

/// AllToAll, RoundRobin, OnDemand; StreamDefault: what the other side says.
Result<std::uint8_t> parse_distribution(std::string_view text);

}  // namespace forebay
