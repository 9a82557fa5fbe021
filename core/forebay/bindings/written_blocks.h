// SPDX-License-Identifier: Apache-2.0
// What one rank has written in the open step, by place: Python refuses to write an element twice, which is a mistake
// wherever ranks or blocks were cut wrongly. (ADIOS2 programs may: of their blocks the later one wins.)
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <forebay/result.h>
#include <forebay/types.h>

namespace forebay::python {

class WrittenBlocks {
 public:
  /// invalid_argument if this block shares an element with one that was added, and names both. Blocks without a place
  /// (local and joined ones, values of one rank) share none.
  Result<void> check(const std::string& name, ShapeKind kind, const Dimensions& start, const Dimensions& count) const;
  /// After the block was written.
  void add(const std::string& name, ShapeKind kind, const Dimensions& start, const Dimensions& count);
  /// The step is over.
  void clear() { variables_.clear(); }

 private:
  struct Places {
    bool is_single_value = false;
    std::multimap<std::uint64_t, Box> by_first_start;
    std::uint64_t first_count_max = 0;  ///< along the first dimension, of all blocks
  };
  std::map<std::string, Places> variables_;
};

}  // namespace forebay::python
