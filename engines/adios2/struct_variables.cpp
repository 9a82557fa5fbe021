// SPDX-License-Identifier: Apache-2.0
// AvailableVariables leaves out variables of struct type, so the core IO's own list is looked at, read only.
#include "struct_variables.h"

#include <unordered_map>

#include "known_versions.h"
#include "variable_selection.h"

// Exported by ADIOS2's core, but declared in headers only that it does not install.
extern "C" {
const void* forebay_core_variables(const void* io) __asm__("_ZNK6adios24core2IO12GetVariablesB5cxx11Ev")
    __attribute__((weak));
extern __attribute__((weak)) const char adios2_version_str[];
}

namespace forebay::engine {
namespace {

// The names are what is looked at; what they lead to is as large as a std::unique_ptr.
using VariablesByName = std::unordered_map<std::string, void*>;

const VariablesByName* variables_by_name(const adios2::IO& io) {
  const void* core = identity_of(io);
  if (core == nullptr || &forebay_core_variables == nullptr) return nullptr;
  if (&adios2_version_str == nullptr || !forebay_knows_adios2(adios2_version_str)) return nullptr;
  return static_cast<const VariablesByName*>(forebay_core_variables(core));
}

}  // namespace

std::size_t count_variables(const adios2::IO& io) {
  const VariablesByName* variables = variables_by_name(io);
  return variables == nullptr ? 0 : variables->size();
}

std::optional<std::string> find_struct_variable(const adios2::IO& io) {
  const VariablesByName* variables = variables_by_name(io);
  if (variables == nullptr) return std::nullopt;
  for (const auto& entry : *variables) {
    if (io.VariableType(entry.first) == "struct") return entry.first;
  }
  return std::nullopt;
}

}  // namespace forebay::engine
