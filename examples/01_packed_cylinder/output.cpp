// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <iostream>
#include <stdexcept>
#include <string>

#include "lattice.h"

namespace packed_cylinder {
namespace {

// As often as servers may go away one after another.
constexpr int attempts_max = 3;

void define_attributes(adios2::IO& io, const Options& options, const Domain& domain) {
  io.DefineAttribute<std::string>("geometry", options.geometry);
  io.DefineAttribute<std::string>("units", "lattice");
  io.DefineAttribute<std::string>("spacing/units", "cells");
  io.DefineAttribute<std::string>("time/units", "iterations");
  io.DefineAttribute<std::string>("velocity/units", "cells per iteration");
  io.DefineAttribute<double>("spacing", 1.0);
  io.DefineAttribute<double>("viscosity", options.viscosity);
  io.DefineAttribute<double>("force", options.force);
  io.DefineAttribute<double>("density", 1.0);
  io.DefineAttribute<double>("porosity", domain.porosity);
  io.DefineAttribute<double>("cylinder_radius", domain.cylinder_radius);
  io.DefineAttribute<double>("sphere_radius", domain.sphere_radius);
  if (!domain.spheres.empty()) {
    std::vector<double> centres;
    for (const auto& centre : domain.spheres) {
      centres.insert(centres.end(), centre.begin(), centre.end());
    }
    io.DefineAttribute<double>("sphere_centres", centres.data(), centres.size());
  }
  io.DefineAttribute<std::uint64_t>("column_area", domain.column_area);
  io.DefineAttribute<std::uint64_t>("inlet_plane", domain.inlet_plane);
  io.DefineAttribute<std::uint64_t>("outlet_plane", domain.outlet_plane);
  io.DefineAttribute<std::uint64_t>("iterations_per_step", options.iterations_per_step);
  io.DefineAttribute<std::uint64_t>("seed", options.seed);
}

}  // namespace

Output::Output(adios2::ADIOS& adios, const Options& options, const Domain& domain, Slab slab)
    : io_(adios.DeclareIO("flow")),
      first_rank_(options.rank == 0),
      velocity_data_(3 * slab.planes() * domain.ny * domain.nx),
      pressure_data_(slab.planes() * domain.ny * domain.nx),
      solid_data_(domain.solid.data() + slab.begin * domain.ny * domain.nx) {
  if (!io_.InConfigFile()) {
    throw std::runtime_error(options.config +
                             " does not configure an IO named flow: start from the adios2.xml beside the simulation");
  }
  const adios2::Dims shape{domain.nz, domain.ny, domain.nx};
  const adios2::Dims start{slab.begin, 0, 0};
  const adios2::Dims count{slab.planes(), domain.ny, domain.nx};
  pressure_ = io_.DefineVariable<float>("pressure", shape, start, count, adios2::ConstantDims);
  solid_ = io_.DefineVariable<std::uint8_t>("solid", shape, start, count, adios2::ConstantDims);
  velocity_ = io_.DefineVariable<float>("velocity", {domain.nz, domain.ny, domain.nx, 3}, {slab.begin, 0, 0, 0},
                                        {slab.planes(), domain.ny, domain.nx, 3}, adios2::ConstantDims);
  if (options.checkpoint_every != 0) {
    populations_ =
        io_.DefineVariable<double>("populations", {directions, domain.nz, domain.ny, domain.nx}, {0, slab.begin, 0, 0},
                                   {directions, slab.planes(), domain.ny, domain.nx}, adios2::ConstantDims);
    populations_data_.resize(directions * pressure_data_.size());
  }
  step_ = io_.DefineVariable<std::uint64_t>("step");
  iteration_ = io_.DefineVariable<std::uint64_t>("iteration");
  time_ = io_.DefineVariable<double>("time");
  define_attributes(io_, options, domain);
  engine_ = io_.Open(options.output, options.restart.empty() ? adios2::Mode::Write : adios2::Mode::Append);
}

std::chrono::duration<double> Output::write(std::uint64_t step, std::uint64_t iteration, const Flow& flow,
                                            bool with_populations) {
  flow.macroscopic(velocity_data_, pressure_data_);
  if (with_populations) {
    flow.populations(populations_data_);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int attempt = 1;; ++attempt) {
    put(step, iteration, with_populations);
    try {
      engine_.EndStep();
      break;
    } catch (const std::exception& error) {
      if (attempt == attempts_max) throw;
      // Where nothing goes on, the next BeginStep says so.
      std::cout << "step " << step << " is written again: " << error.what() << std::endl;
    }
  }
  return std::chrono::steady_clock::now() - begin;
}

void Output::put(std::uint64_t step, std::uint64_t iteration, bool with_populations) {
  engine_.BeginStep();
  engine_.Put(velocity_, velocity_data_.data());
  engine_.Put(pressure_, pressure_data_.data());
  engine_.Put(solid_, solid_data_);
  if (with_populations) {
    engine_.Put(populations_, populations_data_.data());
  }
  if (first_rank_) {
    engine_.Put(step_, step);
    engine_.Put(iteration_, iteration);
    engine_.Put(time_, static_cast<double>(iteration));
  }
}

}  // namespace packed_cylinder
