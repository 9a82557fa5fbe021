// SPDX-License-Identifier: Apache-2.0
#include "diagnostics.h"

namespace packed_cylinder {

Diagnostics::Diagnostics(const Domain& domain, const Options& options) : domain_(domain), options_(options) {
  for (std::size_t rank = 0; rank < options.ranks; ++rank) {
    counts_.push_back(3 * slab_of_rank(domain.nz, rank, options.ranks).planes() + 1);
  }
}

Summary Diagnostics::summarize(const Flow& flow, Ring& ring, bool want_stop) const {
  std::vector<double> own;
  for (const PlaneSums& sums : flow.plane_sums()) {
    own.insert(own.end(), {sums.velocity_z, sums.pressure, sums.fluid_cells});
  }
  own.push_back(want_stop ? 1.0 : 0.0);
  const std::vector<double> all = ring.gather(own, counts_);

  Summary summary;
  std::vector<PlaneSums> planes;
  auto next = all.begin();
  for (const std::size_t count : counts_) {
    for (std::size_t i = 0; i + 1 < count; i += 3, next += 3) {
      planes.push_back({next[0], next[1], next[2]});
    }
    summary.stop = summary.stop || *next++ != 0;
  }
  for (std::size_t z = domain_.inlet_plane; z < domain_.outlet_plane; ++z) {
    summary.mean_velocity += planes[z].velocity_z;
  }
  const auto length = static_cast<double>(domain_.outlet_plane - domain_.inlet_plane);
  summary.mean_velocity /= length * static_cast<double>(domain_.column_area);
  const PlaneSums& inlet = planes[domain_.inlet_plane];
  const PlaneSums& outlet = planes[domain_.outlet_plane % domain_.nz];
  // One period further the pressure is lower by what the force makes up for.
  const double period = domain_.outlet_plane < domain_.nz ? 0.0 : options_.force * static_cast<double>(domain_.nz);
  summary.pressure_drop = inlet.pressure / inlet.fluid_cells - outlet.pressure / outlet.fluid_cells + period;
  summary.permeability = options_.viscosity * summary.mean_velocity * length / summary.pressure_drop;
  return summary;
}

}  // namespace packed_cylinder
