// SPDX-License-Identifier: Apache-2.0
// Answers Engine::BlocksInfo and Python's blocks_info and minmax: what is known of each block of a variable.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <adios2/common/ADIOSTypes.h>

#include <forebay/reader.h>

namespace forebay::engine {

class BlocksInfo {
 public:
  /// A new object, which ADIOS2 deletes; it points into `step` and into this object, which hold until the next call.
  /// `label` is what Info::Step will say. With `column_major`, dimensions are given in Fortran's order. Values are
  /// read, so this may fail.
  Result<adios2::MinVarInfo*> make(std::shared_ptr<const Step> step, const VariableInfo& variable, std::size_t label,
                                   bool column_major);

  /// Lets go of the step; ADIOS2 has copied what make() pointed to.
  void release() { step_.reset(); }

 private:
  using Value = std::array<std::byte, 16>;
  Result<void> add_value(const VariableInfo& variable, std::size_t block, adios2::MinBlockInfo& info);

  std::shared_ptr<const Step> step_;
  VariableInfo reversed_;  // with column_major
  std::vector<Value> values_;
  std::vector<std::string> strings_;
  std::vector<const char*> texts_;
};

}  // namespace forebay::engine
