// SPDX-License-Identifier: Apache-2.0
// The solid: a cylinder along z packed with spheres, and the simpler shapes that the physics is checked with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "options.h"

namespace packed_cylinder {

struct Domain {
  std::size_t nx = 0, ny = 0, nz = 0;
  bool periodic_across = false;                // in x and y; z is always periodic
  std::vector<std::uint8_t> solid;             // [z][y][x], 1 where solid
  std::vector<std::array<double, 3>> spheres;  // centres (x, y, z) in cells; cell i reaches from i to i + 1
  double sphere_radius = 0;
  double cylinder_radius = 0;   // 0 where there is no cylinder
  std::size_t column_area = 0;  // cells of one cross-section without spheres
  // The pressure drop is taken from the plane `inlet_plane` to the plane `outlet_plane`. When outlet - inlet == nz the
  // two are the same plane one period apart, and the drop is what the force makes of it.
  std::size_t inlet_plane = 0, outlet_plane = 0;
  double porosity = 0;  // fluid share of the column between the two planes

  [[nodiscard]] bool is_solid(std::size_t x, std::size_t y, std::size_t z) const {
    return solid[(z * ny + y) * nx + x] != 0;
  }
};

// Same options, same domain, on every machine with IEEE arithmetic. Throws std::invalid_argument when the options
// describe no domain, e.g. more spheres than fit.
Domain make_domain(const Options& options);

}  // namespace packed_cylinder
