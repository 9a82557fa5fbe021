// SPDX-License-Identifier: Apache-2.0
// How blocks cover a global array: which of them overlap, and how many elements none of them has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace forebay {

struct CoveringBlock {
  std::span<const std::uint64_t> start;  ///< one number for each dimension of the array
  std::span<const std::uint64_t> count;
  std::uint32_t rank = 0;
};

struct Coverage {
  std::uint64_t elements = 0;  ///< of the array; the largest number where there are more
  std::uint64_t missing = 0;   ///< that no block covers
  std::optional<std::pair<std::uint32_t, std::uint32_t>> overlap;  ///< ranks of two blocks that share elements
  bool exact = true;  ///< false: too many blocks overlap to count; `missing` is a lower limit

  bool is_whole() const noexcept { return missing == 0 && !overlap; }
};

/// Its cost is bounded: some milliseconds, however many blocks there are.
Coverage coverage_of(std::span<const std::uint64_t> shape, const std::vector<CoveringBlock>& blocks);

/// "no block covers 4 of its 8 elements; blocks of ranks 0 and 1 overlap"; empty if it is whole.
std::string to_text(const Coverage& coverage);

}  // namespace forebay
