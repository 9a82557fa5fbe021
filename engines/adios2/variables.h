// SPDX-License-Identifier: Apache-2.0
// The variables that a reader shows in its IO: those of the current step, with every selection reset, as ADIOS2's own
// streaming engines do. A variable that stays from step to step keeps its handle.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include <adios2.h>

#include <forebay/reader.h>

namespace forebay::engine {

class VariableMirror {
 public:
  /// Makes the IO show exactly these variables of ours. Throws std::logic_error if the application itself has defined
  /// one of the names in this IO; nothing is shown then.
  void show(adios2::IO io, const std::vector<VariableInfo>& variables);

  /// Removes all of them.
  void clear(adios2::IO io);

 private:
  enum class Form { value, local_string, array, local_array };
  struct Shown {
    DataType type;
    Form form;
    std::size_t dimensions;
    std::size_t round;  // the last call of show() that had it
  };
  static Shown describe(const VariableInfo& variable);
  static void define(adios2::IO io, const VariableInfo& variable, Form form);
  static bool reset(adios2::IO io, const VariableInfo& variable, Form form);

  std::unordered_map<std::string, Shown> shown_;
  std::size_t round_ = 0;
};

}  // namespace forebay::engine
