// SPDX-License-Identifier: Apache-2.0
// A core IO keeps its variables in a std::unordered_map by name, to which IO::GetVariables gives read access. Entries
// are moved out of it and back in, whole. No installed header declares what they hold; they are moved without being
// looked at.
#include "hidden_variables.h"

#include <unordered_map>
#include <utility>
#include <vector>

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

// In place of std::unique_ptr<core::VariableBase>: as large, and nothing happens when it ends.
struct Owned {
  void* variable;
};
static_assert(sizeof(Owned) == sizeof(std::unique_ptr<int>));
using Variables = std::unordered_map<std::string, Owned>;

Variables* variables_of(const adios2::IO& io) {
  const void* core = identity_of(io);
  if (core == nullptr || &forebay_core_variables == nullptr) return nullptr;
  return static_cast<Variables*>(const_cast<void*>(forebay_core_variables(core)));
}

// Whether a variable of this IO goes and comes back, once in a process.
bool works(adios2::IO io) {
  static const bool checked = [&] {
    if (&adios2_version_str == nullptr || !forebay_knows_adios2(adios2_version_str)) return false;
    Variables* variables = variables_of(io);
    if (variables == nullptr) return false;
    const std::string name = "forebay hiding check";
    auto defined = io.DefineVariable<double>(name, {8, 8}, {0, 0}, {8, 8});
    const auto found = variables->find(name);
    bool right = found != variables->end() && found->second.variable == core_variable(defined);
    if (right) {
      auto entry = variables->extract(name);
      right = !io.InquireVariable<double>(name) && variables->insert(std::move(entry)).inserted &&
              io.InquireVariable<double>(name) && defined.Count() == adios2::Dims{8, 8};
    }
    io.RemoveVariable(name);
    return right;
  }();
  return checked;
}

}  // namespace

struct HiddenVariables::Impl {
  std::unordered_map<std::string, std::vector<Variables::node_type>> entries;
};

HiddenVariables::HiddenVariables() : impl_(std::make_unique<Impl>()) {}

HiddenVariables::~HiddenVariables() = default;

bool HiddenVariables::hide(adios2::IO io, const std::string& name) {
  if (!works(io)) return false;
  auto& places = impl_->entries[name];
  places.reserve(places.size() + 1);
  auto entry = variables_of(io)->extract(name);
  if (entry.empty()) return false;
  places.push_back(std::move(entry));
  return true;
}

bool HiddenVariables::unhide(adios2::IO io, const std::string& name) {
  const auto found = impl_->entries.find(name);
  if (found == impl_->entries.end() || found->second.empty()) return false;
  auto inserted = variables_of(io)->insert(std::move(found->second.back()));
  if (!inserted.inserted) {
    found->second.back() = std::move(inserted.node);
    return false;
  }
  found->second.pop_back();
  return true;
}

void HiddenVariables::clear(adios2::IO io) {
  for (auto& [name, places] : impl_->entries) {
    while (unhide(io, name)) io.RemoveVariable(name);
  }
  impl_->entries.clear();
}

}  // namespace forebay::engine
