// SPDX-License-Identifier: Apache-2.0
// The engine inside ADIOS2 (core::Engine) whose calls reach an engine of ours. Built-in readers put it into the
// variables that they show, and ADIOS2 then asks it for the size of a selected block. A plugin is not told which one it
// is; see core_engine.cpp for the way to it.
#pragma once

#include <adios2.h>

namespace forebay::engine {

/// A reader that wants to know the core engine in front of it.
class BehindCoreEngine {
 public:
  /// `core` is the core engine; it lives longer than this object.
  virtual void attach(void* core) = 0;

 protected:
  BehindCoreEngine() = default;
  ~BehindCoreEngine() = default;
  BehindCoreEngine(const BehindCoreEngine&) = default;
  BehindCoreEngine& operator=(const BehindCoreEngine&) = default;
};

/// For each CurrentStep of an engine: says that a call has reached it. Null: one that does not want to be attached.
void note_reached(BehindCoreEngine* engine) noexcept;

/// Attaches `engine` to its core engine, one of those that `io` has open. False, and nothing happens, while Open has
/// not returned yet, or where this build of ADIOS2 is not one that this was tried with.
bool attach_to_core(adios2::IO io, BehindCoreEngine& engine);

/// The same for the core engine that an Open has returned.
void attach_to_core(void* core);

/// Makes ADIOS2 answer `mode` when it asks the core engine for the mode it was opened with. ADIOS2 turns
/// ReadRandomAccess into Read for plugins; its Python module then passes on no steps. False, and nothing happens, where
/// the place of the mode does not look as in ADIOS2 2.12.
bool set_open_mode(adios2::IO io, void* core, adios2::Mode mode);

}  // namespace forebay::engine
