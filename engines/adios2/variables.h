// SPDX-License-Identifier: Apache-2.0
// The variables that a reader shows in its IO: those of the current step, with every selection reset, as ADIOS2's own
// streaming engines do. A variable that stays from step to step keeps its handle. Readers of one IO share variables of
// the same name, type and kind.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <adios2.h>

#include <forebay/reader.h>

#include "hidden_variables.h"
#include "variable_facts.h"

namespace forebay::engine {

class VariableMirror {
 public:
  using FactsOf = std::function<VariableFacts(const VariableInfo&)>;

  VariableMirror() = default;
  ~VariableMirror();
  VariableMirror(const VariableMirror&) = delete;
  VariableMirror& operator=(const VariableMirror&) = delete;

  /// Makes the IO show exactly these variables of ours. Throws std::logic_error if a name is taken in this IO, by the
  /// application or by another reader's variable that differs in kind; nothing of ours is shown then.
  void show(adios2::IO io, const std::vector<VariableInfo>& variables, const FactsOf& facts);

  /// Handles of what is shown now stay valid until clear(), also over steps that do not have it. Step selections are
  /// undone.
  void keep(adios2::IO io);

  /// From now on ADIOS2 asks `core`, the reader's core engine, for the blocks of variables that are shown.
  void attach(adios2::IO io, const void* core);

  /// Removes all of them.
  void clear(adios2::IO io);

 private:
  enum class Form { value, local_string, array, local_array };
  struct Shown {
    DataType type;
    Form form;
    std::size_t dimensions;
    std::size_t round;  // the last call of show() that had it
    bool kept = false;
    bool hidden = false;  // kept, and not in this step
  };
  using Entry = std::pair<const std::string, Shown>;
  static Shown describe(const VariableInfo& variable);
  void define(adios2::IO io, const VariableInfo& variable, Form form) const;
  /// False if there is no such variable any more.
  bool reset(adios2::IO io, const VariableInfo& variable, Form form, const FactsOf& facts) const;
  bool share(adios2::IO io, const VariableInfo& variable, Form form, const FactsOf& facts);
  void remove(adios2::IO io, const std::string& name, const Shown& shown);

  const void* io_ = nullptr;    // for telling apart readers of one IO
  const void* core_ = nullptr;  // the core engine; null: unknown
  std::unordered_map<std::string, Shown> shown_;
  std::vector<Entry*> order_;  // of `shown_`, as the last step had them
  std::size_t round_ = 0;
  HiddenVariables hidden_;
};

}  // namespace forebay::engine
