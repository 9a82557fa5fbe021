// SPDX-License-Identifier: Apache-2.0
// What the command line says about one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace packed_cylinder {

struct Options {
  // Geometry, in lattice cells.
  std::string geometry = "packed-cylinder";
  std::size_t nx = 48, ny = 48, nz = 88;
  double sphere_radius = 6.0;
  double solid_fraction = 0.48;  // of the bed's volume
  std::size_t plenum = 16;       // free length in front of and behind the bed
  std::uint64_t seed = 7;

  // Physics, in lattice units.
  double viscosity = 0.01;
  double force = 6e-5;

  // Time and output.
  std::uint64_t steps = 100;  // output steps of the whole run, counted from 0
  std::uint64_t iterations_per_step = 25;
  std::uint64_t checkpoint_every = 10;  // output steps; 0 writes none
  std::uint64_t pace_ms = 0;
  std::string config = "adios2.xml";
  std::string output = "flow";
  std::string restart;

  // The group of processes.
  std::size_t rank = 0, ranks = 1;
  std::string rendezvous;
  std::uint64_t connect_timeout_ms = 30000;
};

enum class ParseResult { run, exit_success, exit_usage };

// Fills `options`; prints help or the mistake itself when the answer is not `run`.
ParseResult parse_options(int argc, char** argv, Options& options);

// One number for everything that all ranks must agree on; ranks compare it before they start.
std::uint64_t agreement_hash(const Options& options);

}  // namespace packed_cylinder
