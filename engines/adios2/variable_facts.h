// SPDX-License-Identifier: Apache-2.0
// What ADIOS2 answers about a reader's variable by itself, without asking the engine: how many steps have it, its
// minimum and maximum, its shape in each step. Interface v2 has no way to set these; see variable_facts.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <adios2.h>

#include <forebay/reader.h>

namespace forebay::engine {

struct VariableFacts {
  struct Range {
    std::array<std::byte, 16> min, max;  // one element of the variable's type
  };
  struct InStep {
    std::uint64_t number;
    Dimensions shape;
  };
  std::size_t steps_count = 1;
  std::optional<Range> range;   ///< none where nothing is known of it
  std::vector<InStep> by_step;  ///< random access only: what each of the variable's steps is like
};

/// Whether the element at `value` is NaN, which is in no range. False for a type that has no order.
bool is_nan(const std::byte* value, DataType type);

/// The variable's facts in one step.
VariableFacts facts_of(const Step& step, const VariableInfo& variable);

/// Widens the range of `facts`, of a variable of type `type`, by that of another step.
void widen(VariableFacts& facts, const VariableFacts& other, DataType type);

/// Makes `variable` answer with these facts. Where ADIOS2's build is not one that this was written for nothing happens,
/// and it keeps answering 0. The caller has called check_facts.
template <class T>
void set_facts(const adios2::Variable<T>& variable, const VariableFacts& facts);

/// Makes ADIOS2 ask `core`, a core engine, for the blocks of `variable`; null: nobody. Under the same conditions.
template <class T>
void set_engine(const adios2::Variable<T>& variable, const void* core);

/// Lets `variable` go from the core engine `core`, if that is the one it has.
template <class T>
void unset_engine(const adios2::Variable<T>& variable, const void* core);

/// Finds out, once in a process, whether set_facts may be used with the ADIOS2 that is loaded: its version is one that
/// this was tried with, and a trial succeeds, on a variable of `io` that exists only meanwhile. False: set_facts does
/// nothing.
bool check_facts(adios2::IO io);

}  // namespace forebay::engine
