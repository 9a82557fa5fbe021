// SPDX-License-Identifier: Apache-2.0
// Reads what a restart needs from a BP5 file, with plain ADIOS2.
#pragma once

#include <cstdint>
#include <vector>

#include <adios2.h>

#include "flow.h"
#include "geometry.h"
#include "options.h"

namespace packed_cylinder {

struct Checkpoint {
  std::uint64_t step = 0, iteration = 0;
  std::vector<double> populations;  // [19][plane][y][x] of the slab
};

// The newest step of `options.restart` that holds populations, this slab's share of it, however many ranks wrote it.
// Throws std::runtime_error when there is none, or when it is of another grid or physics than `options` ask for.
Checkpoint read_checkpoint(adios2::ADIOS& adios, const Options& options, const Domain& domain, Slab slab);

}  // namespace packed_cylinder
