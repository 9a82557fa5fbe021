// SPDX-License-Identifier: Apache-2.0
#include "parameter_values.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace forebay::engine {
namespace {

// Longer names are no misspellings of ours, and the comparison takes time that grows with the square.
constexpr std::size_t compared_length_max = 64;

// How many letters must be inserted, removed or replaced to make one text of the other.
std::size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t replaced = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string normalized(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return result;
}

void expected(const std::string& what) {
  throw std::invalid_argument("expected " + what);
}

bool parse_bool(const std::string& text) {
  return parsed(forebay::parse_bool(text));
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > compared_length_max) return {};
  std::string_view nearest;
  // A third of the letters may be wrong.
  std::size_t distance_max = std::max<std::size_t>(name.size() / 3, 1);
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(normalized(name), normalized(candidate));
    if (distance > distance_max || (!nearest.empty() && distance == distance_max)) continue;
    nearest = candidate;
    distance_max = distance;
  }
  return nearest;
}

}  // namespace forebay::engine
