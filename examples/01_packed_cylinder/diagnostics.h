// SPDX-License-Identifier: Apache-2.0
// What the simulation says about the whole flow after each output step, and whether the ranks agree to go on.
#pragma once

#include <cstddef>
#include <vector>

#include "flow.h"
#include "geometry.h"
#include "options.h"
#include "ring.h"

namespace packed_cylinder {

struct Summary {
  double mean_velocity = 0;  // superficial: per area of the column, the solid included
  double pressure_drop = 0;  // from the inlet plane to the outlet plane
  double permeability = 0;   // Darcy's: viscosity * mean velocity * distance of the planes / pressure drop
  bool stop = false;         // some rank wants to end here
};

class Diagnostics {
 public:
  // Both must outlive the diagnostics.
  Diagnostics(const Domain& domain, const Options& options);

  // The same on every rank, and the same bits for any number of ranks: sums are taken plane by plane and added up in
  // the order of z. Every rank must call it. Throws PeerLost.
  Summary summarize(const Flow& flow, Ring& ring, bool want_stop) const;

 private:
  const Domain& domain_;
  const Options& options_;
  std::vector<std::size_t> counts_;  // numbers that each rank brings
};

}  // namespace packed_cylinder
