// SPDX-License-Identifier: Apache-2.0
#include "node_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>

namespace forebay::slurm {
namespace {

constexpr std::size_t digits_max = 9;

bool is_name(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

std::optional<std::uint32_t> number_of(std::string_view text) {
  std::uint32_t number = 0;
  if (text.empty() || text.size() > digits_max) return std::nullopt;
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || after != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Whether one of the ranges, as 01-04 or 7, has the number that `digits` writes; nothing if they are none.
std::optional<bool> has_number(std::string_view ranges, std::string_view digits) {
  bool found = false;
  const auto wanted = number_of(digits);
  while (true) {
    const auto comma = std::min(ranges.find(','), ranges.size());
    const std::string_view range = ranges.substr(0, comma);
    const auto dash = range.find('-');
    const std::string_view first_digits = range.substr(0, dash);
    const auto first = number_of(first_digits);
    const auto last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
    if (!first || !last) return std::nullopt;
    if (wanted && *wanted >= *first && *wanted <= *last) {
      // 8 is n08 where the range begins with 01.
      std::string padded = std::to_string(*wanted);
      if (padded.size() < first_digits.size()) padded.insert(0, first_digits.size() - padded.size(), '0');
      found = found || padded == digits;
    }
    if (comma == ranges.size()) return found;
    ranges.remove_prefix(comma + 1);
  }
}

}  // namespace

std::optional<bool> names_node(std::string_view list, std::string_view node) {
  bool found = false;
  while (!list.empty()) {
    const auto open = list.find('[');
    const auto comma = std::min(list.find(','), list.size());
    if (open == std::string_view::npos || comma < open) {
      const std::string_view name = list.substr(0, comma);
      if (name.empty() || !is_name(name)) return std::nullopt;
      found = found || name == node;
      list.remove_prefix(std::min(comma + 1, list.size()));
      continue;
    }
    const auto close = list.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    const auto end = std::min(list.find(',', close), list.size());
    const std::string_view head = list.substr(0, open);
    const std::string_view tail = list.substr(close + 1, end - close - 1);
    if (head.empty() || !is_name(head) || !is_name(tail)) return std::nullopt;
    const bool fits = node.size() > head.size() + tail.size() && node.starts_with(head) && node.ends_with(tail);
    const std::string_view digits =
        fits ? node.substr(head.size(), node.size() - head.size() - tail.size()) : std::string_view();
    const auto in_range = has_number(list.substr(open + 1, close - open - 1), digits);
    if (!in_range) return std::nullopt;
    found = found || *in_range;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return found;
}

}  // namespace forebay::slurm
