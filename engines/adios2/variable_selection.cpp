// SPDX-License-Identifier: Apache-2.0
// adios2::core::InferSelection is public and gives the whole selection. But it takes a core variable, which
// adios2::Variable keeps private, as adios2::IO does with the core IO. Explicit template instantiations may name
// private members, so they get pointers to both. That is no promised interface, so it is tried at the first open and
// can be compiled out (FOREBAY_ADIOS2_PUBLIC_SELECTION).
#include "variable_selection.h"

#include <atomic>
#include <stdexcept>
#include <string>

#include "member_access.h"

namespace forebay::engine {

#ifndef FOREBAY_ADIOS2_PUBLIC_SELECTION

namespace {

template <class T>
using CoreVariable = adios2::core::Variable<T>*;

template <class T>
struct Access;

#define FOREBAY_ACCESS(T, LABEL)                                                  \
  struct Access_##LABEL {                                                         \
    using Type = CoreVariable<T> adios2::Variable<T>::*;                          \
    friend Type member_pointer(Access_##LABEL);                                   \
  };                                                                              \
  template struct MemberAccess<Access_##LABEL, &adios2::Variable<T>::m_Variable>; \
  template <>                                                                     \
  struct Access<T> {                                                              \
    using Tag = Access_##LABEL;                                                   \
  };
ADIOS2_FOREACH_STDTYPE_2ARGS(FOREBAY_ACCESS)
#undef FOREBAY_ACCESS

struct AccessIo {
  using Type = adios2::core::IO* adios2::IO::*;
  friend Type member_pointer(AccessIo);
};
template struct MemberAccess<AccessIo, &adios2::IO::m_IO>;

}  // namespace

template <class T>
void* core_variable(const adios2::Variable<T>& variable) {
  return variable.*member_pointer(typename Access<T>::Tag{});
}

template <class T>
adios2::core::Selection selection_of(const adios2::Variable<T>& variable) {
  // core::Variable<T> derives from VariableBase alone; its definition is not installed.
  return adios2::core::InferSelection(*static_cast<const adios2::core::VariableBase*>(core_variable(variable)));
}

const void* identity_of(const adios2::IO& io) {
  return io.*member_pointer(AccessIo{});
}

void check_selections(adios2::IO io) {
  static std::atomic<bool> checked = false;
  if (checked.load(std::memory_order_acquire)) return;
  const std::string name = "forebay selection check";
  auto variable = io.DefineVariable<double>(name, {8, 8}, {0, 0}, {8, 8});
  variable.SetSelection({{1, 2}, {3, 4}});
  variable.SetMemorySelection({{1, 1}, {5, 6}});
  const adios2::core::Selection box = selection_of(variable);
  variable.SetStepSelection({7, 2});
  variable.SetBlockSelection(3);
  const adios2::core::Selection block = selection_of(variable);
  io.RemoveVariable(name);
  const bool seen = box.GetSelectionType() == adios2::SelectionType::BoundingBox &&
                    box.GetStart() == adios2::Dims{1, 2} && box.GetCount() == adios2::Dims{3, 4} &&
                    box.HasMemorySelection() && box.GetMemoryStart() == adios2::Dims{1, 1} &&
                    box.GetMemoryCount() == adios2::Dims{5, 6} && block.HasBlockSelection() &&
                    block.GetBlockID() == 3 && block.GetStepStart() == 7 && block.GetStepCount() == 2;
  if (!seen) {
    throw std::runtime_error(
        "Forebay: this plugin does not see selections made in the ADIOS2 that loaded it. Build it against that ADIOS2 "
        "(set ADIOS2_DIR), or with -DFOREBAY_ADIOS2_PUBLIC_SELECTION=ON, which gives up memory and step selections.");
  }
  checked.store(true, std::memory_order_release);
}

#else

template <class T>
void* core_variable(const adios2::Variable<T>&) {
  return nullptr;
}

template <class T>
adios2::core::Selection selection_of(const adios2::Variable<T>& variable) {
  adios2::core::Selection selection;
  const adios2::Dims start = variable.Start();
  const adios2::Dims count = variable.Count();
  if (!start.empty() && start.size() == count.size()) selection.SetBoundingBox(start, count);
  if (variable.BlockID() != 0) selection.SetBlock(variable.BlockID());
  return selection;
}

const void* identity_of(const adios2::IO&) {
  return nullptr;
}

void check_selections(adios2::IO) {}

#endif

#define FOREBAY_INSTANTIATE(T)                              \
  template void* core_variable(const adios2::Variable<T>&); \
  template adios2::core::Selection selection_of(const adios2::Variable<T>&);
ADIOS2_FOREACH_STDTYPE_1ARG(FOREBAY_INSTANTIATE)
#undef FOREBAY_INSTANTIATE

}  // namespace forebay::engine
