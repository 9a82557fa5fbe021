// SPDX-License-Identifier: Apache-2.0
// What the simulation writes: one ADIOS2 step per output step, through whatever engine the configuration names.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <adios2.h>

#include "flow.h"
#include "geometry.h"
#include "options.h"

namespace packed_cylinder {

class Output {
 public:
  // Opens `options.output`; appends when the run is a restart. Throws what ADIOS2 throws.
  Output(adios2::ADIOS& adios, const Options& options, const Domain& domain, Slab slab);

  // Writes one step: velocity, pressure, solid, and on rank 0 step, iteration and time; populations too when asked for.
  // A step that is given up, on all ranks, because a staging server with a part of it went away, is written again.
  // Returns how long ADIOS2 took, from BeginStep to EndStep.
  std::chrono::duration<double> write(std::uint64_t step, std::uint64_t iteration, const Flow& flow,
                                      bool with_populations);
  void close() { engine_.Close(); }

 private:
  void put(std::uint64_t step, std::uint64_t iteration, bool with_populations);

  adios2::IO io_;
  adios2::Engine engine_;
  const bool first_rank_;
  adios2::Variable<float> velocity_, pressure_;
  adios2::Variable<std::uint8_t> solid_;
  adios2::Variable<double> populations_, time_;
  adios2::Variable<std::uint64_t> step_, iteration_;
  std::vector<float> velocity_data_, pressure_data_;
  std::vector<double> populations_data_;
  const std::uint8_t* const solid_data_;
};

}  // namespace packed_cylinder
