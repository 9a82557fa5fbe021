// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include <sstream>
#include <stdexcept>
#include <string>

#include "lattice.h"

namespace packed_cylinder {
namespace {

[[noreturn]] void refuse(const Options& options, const std::string& why) {
  throw std::runtime_error("cannot restart from " + options.restart + ": " + why);
}

template <class T>
void check_attribute(adios2::IO& io, const Options& options, const std::string& name, T wanted) {
  const adios2::Attribute<T> attribute = io.InquireAttribute<T>(name);
  if (!attribute) {
    refuse(options, "it has no attribute " + name + "; take a checkpoint that this simulation wrote");
  }
  if (attribute.Data().at(0) != wanted) {
    std::ostringstream why;
    why << "its " << name << " is " << attribute.Data().at(0) << ", this run's is " << wanted
        << "; give the options of the first run";
    refuse(options, why.str());
  }
}

std::uint64_t read_value(adios2::IO& io, adios2::Engine& engine, const Options& options, const std::string& name,
                         std::size_t step) {
  adios2::Variable<std::uint64_t> variable = io.InquireVariable<std::uint64_t>(name);
  if (!variable) {
    refuse(options, "it has no variable " + name);
  }
  variable.SetStepSelection({step, 1});
  std::uint64_t value = 0;
  engine.Get(variable, &value, adios2::Mode::Sync);
  return value;
}

}  // namespace

Checkpoint read_checkpoint(adios2::ADIOS& adios, const Options& options, const Domain& domain, Slab slab) {
  adios2::IO io = adios.DeclareIO("restart");
  io.SetEngine("BP5");
  adios2::Engine engine = io.Open(options.restart, adios2::Mode::ReadRandomAccess);
  adios2::Variable<double> variable = io.InquireVariable<double>("populations");
  if (!variable || variable.Steps() == 0) {
    refuse(options, "none of its steps holds populations");
  }
  const adios2::Dims shape{directions, domain.nz, domain.ny, domain.nx};
  if (variable.Shape() != shape) {
    refuse(options, "it is of another grid; give the --nx, --ny and --nz of the first run");
  }
  check_attribute<std::string>(io, options, "geometry", options.geometry);
  check_attribute<double>(io, options, "viscosity", options.viscosity);
  check_attribute<double>(io, options, "force", options.force);
  check_attribute<double>(io, options, "sphere_radius", domain.sphere_radius);
  check_attribute<std::uint64_t>(io, options, "seed", options.seed);
  check_attribute<std::uint64_t>(io, options, "iterations_per_step", options.iterations_per_step);

  // A variable's steps are counted among those that hold it; single values are in all of them.
  const std::size_t newest = variable.Steps() - 1;
  const std::size_t absolute = engine.GetAbsoluteSteps(variable).at(newest);
  Checkpoint checkpoint;
  checkpoint.step = read_value(io, engine, options, "step", absolute);
  checkpoint.iteration = read_value(io, engine, options, "iteration", absolute);
  checkpoint.populations.resize(directions * slab.planes() * domain.ny * domain.nx);
  variable.SetStepSelection({newest, 1});
  variable.SetSelection({{0, slab.begin, 0, 0}, {directions, slab.planes(), domain.ny, domain.nx}});
  engine.Get(variable, checkpoint.populations.data(), adios2::Mode::Sync);
  engine.Close();
  adios.RemoveIO("restart");
  return checkpoint;
}

}  // namespace packed_cylinder
