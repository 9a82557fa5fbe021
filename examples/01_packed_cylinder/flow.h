// SPDX-License-Identifier: Apache-2.0
// The lattice-Boltzmann flow in one slab of the domain: two-relaxation-time collision, half-way bounce-back walls, a
// body force along z. The arithmetic of a cell does not depend on how the domain is cut into slabs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "geometry.h"
#include "lattice.h"
#include "ring.h"

namespace packed_cylinder {

// The planes [begin, end) of the domain that one rank owns.
struct Slab {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t planes() const { return end - begin; }
};

Slab slab_of_rank(std::size_t nz, std::size_t rank, std::size_t ranks);

// Sums over the fluid cells of one plane, in a fixed order.
struct PlaneSums {
  double velocity_z = 0;
  double pressure = 0;
  double fluid_cells = 0;
};

class Flow {
 public:
  // Fluid at rest. The domain must outlive the flow.
  Flow(const Domain& domain, Slab slab, double viscosity, double force);

  // Goes on from populations [19][plane][y][x] of this slab.
  void load(std::span<const double> populations, Ring& ring);
  // One lattice update; exchanges faces with the neighbours.
  void advance(Ring& ring);

  // All of this slab, solid cells as 0: velocity [plane][y][x][3], pressure [plane][y][x], populations
  // [19][plane][y][x].
  void macroscopic(std::span<float> velocity, std::span<float> pressure) const;
  void populations(std::span<double> out) const;
  [[nodiscard]] std::vector<PlaneSums> plane_sums() const;

  [[nodiscard]] std::size_t cells() const { return slab_.planes() * domain_.ny * domain_.nx; }

 private:
  // Neighbouring fluid cells of a row: vector loops without a condition inside.
  struct Run {
    std::size_t begin, length;
  };
  // A population that a fluid cell will pull out of a solid cell is put there by that fluid cell itself.
  struct Link {
    std::size_t solid, fluid;
  };
  struct Cell {
    double density, velocity_x, velocity_y, velocity_z, pressure;
  };

  [[nodiscard]] std::size_t index(std::size_t x, std::size_t y, std::size_t plane) const {
    return ((plane + 1) * (domain_.ny + 2) + y + 1) * row_ + x + 1;
  }
  [[nodiscard]] bool solid_at(std::ptrdiff_t x, std::ptrdiff_t y, std::ptrdiff_t z) const;
  [[nodiscard]] Cell cell(std::size_t at, std::size_t z) const;
  void find_runs_and_links();
  void collide(const Run& run);
  void exchange_faces(Ring& ring);
  void wrap_across();
  void bounce_back();

  const Domain& domain_;
  const Slab slab_;
  const double viscosity_, force_;
  const std::size_t row_, plane_, lattice_size_;  // of the padded arrays, in doubles
  std::vector<Run> runs_;
  std::vector<Link> links_;
  std::vector<double> now_, next_;  // after collision, [19][plane + 2][y + 2][x + 2]
  std::vector<double> to_upper_, to_lower_, from_upper_, from_lower_;
};

}  // namespace packed_cylinder
