// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <sstream>

#include <CLI/CLI.hpp>

namespace packed_cylinder {

ParseResult parse_options(int argc, char** argv, Options& options) {
  CLI::App app{
      "Flow through a packed bed of spheres in a cylinder (D3Q19 lattice Boltzmann), written step by step through "
      "ADIOS2.\n"
      "Example: packed_cylinder --config adios2.xml --output flow.bp --steps 100"};
  // Given twice, the last one counts, so that scripts can add to a common line.
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--geometry", options.geometry, "shape of the solid")
      ->check(CLI::IsMember({"packed-cylinder", "empty-cylinder", "duct", "sphere-array"}));
  app.add_option("--nx", options.nx, "cells across, in x");
  app.add_option("--ny", options.ny, "cells across, in y");
  app.add_option("--nz", options.nz, "cells along the flow");
  app.add_option("--sphere-radius", options.sphere_radius, "in cells");
  app.add_option("--solid-fraction", options.solid_fraction, "share of the bed that the spheres take")
      ->check(CLI::Range(0.01, 0.62));
  app.add_option("--plenum", options.plenum, "free cells in front of and behind the bed");
  app.add_option("--seed", options.seed, "of the packing");
  app.add_option("--viscosity", options.viscosity, "kinematic, in lattice units")->check(CLI::PositiveNumber);
  app.add_option("--force", options.force, "per volume along z, in lattice units");
  app.add_option("--steps", options.steps, "output steps of the whole run, a restart included")
      ->check(CLI::PositiveNumber);
  app.add_option("--iterations-per-step", options.iterations_per_step, "lattice updates between two output steps")
      ->check(CLI::PositiveNumber);
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "output steps between two that hold the populations too; 0: never");
  app.add_option("--pace-ms", options.pace_ms, "least wall time of an output step");
  app.add_option("--config", options.config, "ADIOS2 configuration; its IO is named flow")->check(CLI::ExistingFile);
  app.add_option("--output", options.output, "name given to ADIOS2's Open");
  app.add_option("--restart", options.restart, "BP5 checkpoint to go on from; the output is then appended to")
      ->check(CLI::ExistingPath);
  app.add_option("--rank", options.rank, "this process in the group, from 0");
  app.add_option("--ranks", options.ranks, "processes in the group")->check(CLI::PositiveNumber);
  app.add_option("--rendezvous", options.rendezvous,
                 "folder in which the processes of this run find one another; needed for more than one")
      ->envname("PACKED_CYLINDER_RENDEZVOUS")
      ->check(CLI::ExistingDirectory);
  app.add_option("--connect-timeout-ms", options.connect_timeout_ms, "how long to wait for the other processes");
  try {
    app.parse(argc, argv);
    if (options.rank >= options.ranks) {
      throw CLI::ValidationError("--rank", "must be below --ranks");
    }
    if (options.ranks > options.nz) {
      throw CLI::ValidationError("--ranks", "must not exceed --nz: each process takes a slab of the grid");
    }
    if (options.ranks > 1 && options.rendezvous.empty()) {
      throw CLI::ValidationError("--rendezvous", "must name a folder when --ranks is above 1");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ParseResult::exit_success : ParseResult::exit_usage;
  }
  return ParseResult::run;
}

std::uint64_t agreement_hash(const Options& options) {
  std::ostringstream text;
  text.precision(17);
  text << options.geometry << ' ' << options.nx << ' ' << options.ny << ' ' << options.nz << ' '
       << options.sphere_radius << ' ' << options.solid_fraction << ' ' << options.plenum << ' ' << options.seed << ' '
       << options.viscosity << ' ' << options.force << ' ' << options.steps << ' ' << options.iterations_per_step << ' '
       << options.checkpoint_every << ' ' << options.ranks << ' ' << options.restart;
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char character : text.str()) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace packed_cylinder
