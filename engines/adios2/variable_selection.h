// SPDX-License-Identifier: Apache-2.0
// What an application selected on a variable: box, block, steps, memory layout. Interface v2 hides most of it from
// plugins; see variable_selection.cpp for the way to it.
#pragma once

#include <adios2.h>
#include <adios2/common/Selection.h>

namespace forebay::engine {

/// The selection set on `variable`.
template <class T>
adios2::core::Selection selection_of(const adios2::Variable<T>& variable);

/// The core variable behind `variable`; null if that cannot be known.
template <class T>
void* core_variable(const adios2::Variable<T>& variable);

/// The same for copies of one IO, different for all others; null if that cannot be known.
const void* identity_of(const adios2::IO& io);

/// Checks, once in a process, that selection_of sees what was set on a variable; uses one of `io` that exists only
/// meanwhile. Throws std::runtime_error where this build does not match the ADIOS2 that loaded it.
void check_selections(adios2::IO io);

}  // namespace forebay::engine
