// SPDX-License-Identifier: Apache-2.0
// Carries out one Get on one step: what an ADIOS2 selection means for a variable of each kind.
#pragma once

#include <cstdint>
#include <string>

#include <adios2/common/Selection.h>

#include <forebay/reader.h>

namespace forebay::engine {

/// An application's selection, and whether it was given with the Get (adios2::Selection) or set on the variable before.
/// Given together, a box lies inside the block; on a variable, whose block may be left over from an earlier Get, the
/// box of a global array wins.
struct Selected {
  adios2::core::Selection selection;
  bool with_get = false;
  bool column_major = false;  ///< its dimensions are in Fortran's order, the variable's in C's
};

/// Copies what is selected to `out`, elements of the variable's type, and returns how many.
Result<std::uint64_t> read_selection(const Step& step, const VariableInfo& variable, const Selected& selected,
                                     void* out);

/// The selected string of a string variable.
Result<std::string> read_selected_string(const Step& step, const VariableInfo& variable, const Selected& selected);

/// How many elements read_selection is about to copy, at most.
std::uint64_t selected_elements(const VariableInfo& variable, const Selected& selected);

}  // namespace forebay::engine
