// SPDX-License-Identifier: Apache-2.0
// A core IO keeps its engines in a map by name, which lies behind the map of attributes; IO::GetAttributes shows where
// that is. Which engine of the map is the right one, a call of CurrentStep tells: it reaches our engine. No installed
// header declares a core engine; adios2::Engine asks it.
#include "core_engine.h"

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "known_versions.h"
#include "member_access.h"
#include "variable_selection.h"

// Exported by ADIOS2's core, but declared in headers only that it does not install.
extern "C" {
const void* forebay_core_attributes(const void* io) __asm__("_ZNK6adios24core2IO13GetAttributesB5cxx11Ev")
    __attribute__((weak));
void* forebay_core_engine(void* io, const std::string& name) __asm__(
    "_ZN6adios24core2IO9GetEngineERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE") __attribute__((weak));
extern __attribute__((weak)) const char adios2_version_str[];
}

namespace forebay::engine {
namespace {

struct AccessEngine {
  using Type = adios2::core::Engine* adios2::Engine::*;
  friend Type member_pointer(AccessEngine);
};
template struct MemberAccess<AccessEngine, &adios2::Engine::m_Engine>;

using Engines = std::map<std::string, std::shared_ptr<void>>;

// The beginning of ADIOS2 2.12's core::Engine.
struct EngineHead {
  const void* functions;
  std::string type;
  const void* io;
  std::string name;
  adios2::Mode mode;
};

thread_local BehindCoreEngine* reached = nullptr;

bool knows_this_adios2() {
  return &adios2_version_str != nullptr && forebay_knows_adios2(adios2_version_str) &&
         &forebay_core_attributes != nullptr && &forebay_core_engine != nullptr;
}

adios2::Engine public_engine(void* core) {
  adios2::Engine engine;
  engine.*member_pointer(AccessEngine{}) = static_cast<adios2::core::Engine*>(core);
  return engine;
}

// The engine of ours that calls of `core` reach; null if there is none.
BehindCoreEngine* behind(void* core) {
  const adios2::Engine engine = public_engine(core);
  if (engine.Type() != "Plugin") return nullptr;
  reached = nullptr;
  static_cast<void>(engine.CurrentStep());
  return std::exchange(reached, nullptr);
}

// Null unless it is what GetEngine answers from.
const Engines* engines_of(void* io) {
  const auto* attributes = static_cast<const std::byte*>(forebay_core_attributes(io));
  const auto* engines = reinterpret_cast<const Engines*>(attributes + sizeof(Engines));
  // An IO has few engines; anything else is no map.
  if (engines->size() > 10'000) return nullptr;
  for (const auto& [name, engine] : *engines) {
    if (forebay_core_engine(io, name) != engine.get()) return nullptr;
  }
  return engines;
}

}  // namespace

void note_reached(BehindCoreEngine* engine) noexcept {
  reached = engine;
}

bool attach_to_core(adios2::IO io, BehindCoreEngine& engine) {
  void* const core_io = const_cast<void*>(identity_of(io));
  if (core_io == nullptr || !knows_this_adios2()) return false;
  const Engines* engines = engines_of(core_io);
  if (engines == nullptr) return false;
  for (const auto& entry : *engines) {
    void* const core = entry.second.get();
    if (core == nullptr || behind(core) != &engine) continue;
    engine.attach(core);
    return true;
  }
  return false;
}

void attach_to_core(void* core) {
  if (core == nullptr || !knows_this_adios2()) return;
  if (BehindCoreEngine* engine = behind(core)) engine->attach(core);
}

bool set_open_mode(adios2::IO io, void* core, adios2::Mode mode) {
  auto& head = *static_cast<EngineHead*>(core);
  const adios2::Engine engine = public_engine(core);
  if (head.io != identity_of(io) || head.type != engine.Type() || head.name != engine.Name() ||
      head.mode != engine.OpenMode()) {
    return false;
  }
  const adios2::Mode before = std::exchange(head.mode, mode);
  if (engine.OpenMode() == mode) return true;
  head.mode = before;
  return false;
}

}  // namespace forebay::engine
