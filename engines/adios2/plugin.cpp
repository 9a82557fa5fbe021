// SPDX-License-Identifier: Apache-2.0
// What ADIOS2's plugin manager looks up in the library, and the parameter table for the docs.
#include <stdexcept>
#include <string>

#include <adios2.h>
#include <adios2/plugin/PluginEngineInterface.h>

#include "foreign_parameters.h"
#include "parameters.h"
#include "reader_engine.h"
#include "writer_engine.h"

static_assert(ADIOS2_PLUGIN_ENGINE_INTERFACE == 2, "written for interface v2, which ADIOS2 has since 2.12");

#define FOREBAY_EXPORT extern "C" __attribute__((visibility("default")))

// The three-argument form in every build of ADIOS2, with or without MPI: that is how ADIOS2 calls it. Opens here and
// not in Init, because ADIOS2 leaks an engine whose Init throws.
FOREBAY_EXPORT adios2::plugin::PluginEngineInterface* EngineCreate(adios2::IO io, const std::string& name,
                                                                   const adios2::Mode mode) {
  switch (mode) {
    case adios2::Mode::Write:
    case adios2::Mode::Append:
      return new forebay::engine::WriterEngine(io, name, mode);
    case adios2::Mode::Read:
    case adios2::Mode::ReadRandomAccess:
      return new forebay::engine::ReaderEngine(io, name, mode);
    default:
      throw std::invalid_argument("Forebay: a stream opens with Mode::Write, Append or Read");
  }
}

FOREBAY_EXPORT void EngineDestroy(adios2::plugin::PluginEngineInterface* engine) {
  delete engine;
}

FOREBAY_EXPORT const char* forebay_adios2_parameter_table() {
  static const std::string table = forebay::engine::parameter_table();
  return table.c_str();
}

FOREBAY_EXPORT const char* forebay_adios2_foreign_parameter_table() {
  static const std::string table = forebay::engine::foreign_parameter_table();
  return table.c_str();
}
