// SPDX-License-Identifier: Apache-2.0
// The order of array elements in an IO. Streams hold arrays in C's order (row-major). An IO in Fortran's order
// (column-major) has the same elements under reversed dimensions: A(i,j) of shape (3,2) in Fortran is A[j][i] of shape
// (2,3) in C. ADIOS2's own engines do the same.
#pragma once

#include <optional>
#include <vector>

#include <adios2.h>

#include <forebay/reader.h>

namespace forebay::engine {

/// Whether arrays of `io` are in Fortran's order: as DeclareIO was told, else as the program's language says. None
/// where this build of ADIOS2 does not let the plugin see it.
std::optional<bool> is_column_major(const adios2::IO& io);

/// The same; `told` (the parameter ArrayOrder) goes first. Where nothing says it, the order is C's, and one line on
/// standard error says so.
bool has_column_major_arrays(const adios2::IO& io, std::optional<bool> declared);

/// The variable with all its dimensions reversed, those of its blocks included.
VariableInfo reversed(const VariableInfo& variable);
std::vector<VariableInfo> reversed(const std::vector<VariableInfo>& variables);
Dimensions reversed(const Dimensions& dimensions);

}  // namespace forebay::engine
