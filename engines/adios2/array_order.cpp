// SPDX-License-Identifier: Apache-2.0
// core::IO keeps the order in a member that no public interface shows. core::IO::SetArrayOrder is exported: the one
// word of the core IO that follows its calls is that member. It is looked for once in a process, on the first IO, whose
// order is then restored.
#include "array_order.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>

#include "variable_selection.h"

// Exported by ADIOS2's core, but declared in a header only that it does not install.
extern "C" void forebay_set_array_order(void* io, adios2::ArrayOrdering order) __asm__(
    "_ZN6adios24core2IO13SetArrayOrderENS_13ArrayOrderingE") __attribute__((weak));

namespace forebay::engine {
namespace {

// Of a core IO, which is longer; in 2.12 the order lies at 88.
constexpr std::size_t looked_at_bytes = 192;
using Words = std::array<std::uint32_t, looked_at_bytes / sizeof(std::uint32_t)>;

constexpr auto row_major = static_cast<std::uint32_t>(adios2::ArrayOrdering::RowMajor);
constexpr auto column_major = static_cast<std::uint32_t>(adios2::ArrayOrdering::ColumnMajor);
static_assert(sizeof(adios2::ArrayOrdering) == sizeof(std::uint32_t));

Words words_of(const void* io) {
  Words words;
  std::memcpy(words.data(), io, sizeof words);
  return words;
}

// The place of the order's word; none unless exactly one word follows the calls, and it was an order before.
std::optional<std::size_t> find_order(void* io) {
  const Words before = words_of(io);
  forebay_set_array_order(io, adios2::ArrayOrdering::RowMajor);
  const Words rows = words_of(io);
  forebay_set_array_order(io, adios2::ArrayOrdering::ColumnMajor);
  const Words columns = words_of(io);
  std::optional<std::size_t> found;
  std::size_t changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (rows[i] == columns[i]) continue;
    ++changed;
    if (rows[i] == row_major && columns[i] == column_major) found = i;
  }
  const bool known = found && changed == 1 && (before[*found] == row_major || before[*found] == column_major);
  forebay_set_array_order(io, known ? static_cast<adios2::ArrayOrdering>(before[*found]) : adios2::ArrayOrdering::Auto);
  return known ? found : std::nullopt;
}

}  // namespace

std::optional<bool> is_column_major(const adios2::IO& io) {
  void* const core = const_cast<void*>(identity_of(io));
  if (core == nullptr || &forebay_set_array_order == nullptr) return std::nullopt;
  static const std::optional<std::size_t> place = find_order(core);
  if (!place) return std::nullopt;
  const std::uint32_t order = words_of(core)[*place];
  if (order != row_major && order != column_major) return std::nullopt;
  return order == column_major;
}

bool has_column_major_arrays(const adios2::IO& io, std::optional<bool> declared) {
  if (declared) return *declared;
  if (const std::optional<bool> seen = is_column_major(io)) return *seen;
  static const bool said = [] {
    std::cerr << "Forebay: the plugin cannot see whether this ADIOS2 has arrays in C's or in Fortran's order. It takes "
                 "them for C's. ArrayOrder=column-major or row-major says it.\n";
    return true;
  }();
  return !said;
}

Dimensions reversed(const Dimensions& dimensions) {
  return {dimensions.rbegin(), dimensions.rend()};
}

VariableInfo reversed(const VariableInfo& variable) {
  VariableInfo result = variable;
  std::ranges::reverse(result.shape);
  for (BlockInfo& block : result.blocks) {
    std::ranges::reverse(block.start);
    std::ranges::reverse(block.count);
  }
  return result;
}

std::vector<VariableInfo> reversed(const std::vector<VariableInfo>& variables) {
  std::vector<VariableInfo> result;
  result.reserve(variables.size());
  for (const VariableInfo& variable : variables) result.push_back(reversed(variable));
  return result;
}

}  // namespace forebay::engine
