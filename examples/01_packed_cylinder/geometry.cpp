// SPDX-License-Identifier: Apache-2.0
#include "geometry.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

namespace packed_cylinder {
namespace {

// SplitMix64: a few lines, so that the same seed gives the same bed with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  double uniform() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1.0p-53;
  }

 private:
  std::uint64_t state_;
};

using Centre = std::array<double, 3>;

// The space that sphere centres may take: a cylinder shrunk by one sphere radius on every side.
struct Container {
  double axis_x, axis_y, radius, bottom, top;

  void confine(Centre& centre) const {
    const double dx = centre[0] - axis_x;
    const double dy = centre[1] - axis_y;
    const double distance = std::sqrt(dx * dx + dy * dy);
    if (distance > radius) {
      centre[0] = axis_x + dx * radius / distance;
      centre[1] = axis_y + dy * radius / distance;
    }
    centre[2] = std::clamp(centre[2], bottom, top);
  }
};

// Throws the spheres in at random and pushes overlapping ones apart until they at most touch (within a hundredth of a
// radius).
std::vector<Centre> pack(std::size_t count, double sphere_radius, const Container& container, std::uint64_t seed) {
  constexpr int sweeps_max = 40000;
  const double touching = 2.0 * sphere_radius;
  const double tolerance = 0.01 * sphere_radius;
  Random random(seed);
  std::vector<Centre> centres(count);
  for (Centre& centre : centres) {
    const double distance = container.radius * std::sqrt(random.uniform());
    const double angle = 2.0 * std::numbers::pi * random.uniform();
    centre = {container.axis_x + distance * std::cos(angle), container.axis_y + distance * std::sin(angle),
              container.bottom + (container.top - container.bottom) * random.uniform()};
  }
  for (int sweep = 0; sweep < sweeps_max; ++sweep) {
    double overlap_max = 0;
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = a + 1; b < count; ++b) {
        const double dx = centres[b][0] - centres[a][0];
        const double dy = centres[b][1] - centres[a][1];
        const double dz = centres[b][2] - centres[a][2];
        const double distance = std::max(std::sqrt(dx * dx + dy * dy + dz * dz), 1e-9);
        const double overlap = touching - distance;
        if (overlap <= 0) {
          continue;
        }
        overlap_max = std::max(overlap_max, overlap);
        const double push = 0.5 * overlap / distance;
        centres[a] = {centres[a][0] - push * dx, centres[a][1] - push * dy, centres[a][2] - push * dz};
        centres[b] = {centres[b][0] + push * dx, centres[b][1] + push * dy, centres[b][2] + push * dz};
        container.confine(centres[a]);
        container.confine(centres[b]);
      }
    }
    if (overlap_max < tolerance) {
      return centres;
    }
  }
  throw std::invalid_argument(
      "cannot pack " + std::to_string(count) +
      " spheres into the cylinder without overlap: lower --solid-fraction or --sphere-radius, or take another --seed");
}

void require(bool condition, const std::string& message) {
  if (!condition) {
    throw std::invalid_argument(message);
  }
}

void fill_spheres(Domain& domain) {
  const double radius_squared = domain.sphere_radius * domain.sphere_radius;
  for (std::size_t z = 0; z < domain.nz; ++z) {
    for (std::size_t y = 0; y < domain.ny; ++y) {
      for (std::size_t x = 0; x < domain.nx; ++x) {
        for (const Centre& centre : domain.spheres) {
          const double dx = static_cast<double>(x) + 0.5 - centre[0];
          const double dy = static_cast<double>(y) + 0.5 - centre[1];
          const double dz = static_cast<double>(z) + 0.5 - centre[2];
          if (dx * dx + dy * dy + dz * dz < radius_squared) {
            domain.solid[(z * domain.ny + y) * domain.nx + x] = 1;
          }
        }
      }
    }
  }
}

// Everything outside the circle is wall; a cell belongs to the side on which its centre lies.
void fill_cylinder_wall(Domain& domain) {
  const double axis_x = 0.5 * static_cast<double>(domain.nx);
  const double axis_y = 0.5 * static_cast<double>(domain.ny);
  for (std::size_t y = 0; y < domain.ny; ++y) {
    for (std::size_t x = 0; x < domain.nx; ++x) {
      const double dx = static_cast<double>(x) + 0.5 - axis_x;
      const double dy = static_cast<double>(y) + 0.5 - axis_y;
      if (dx * dx + dy * dy < domain.cylinder_radius * domain.cylinder_radius) {
        ++domain.column_area;
        continue;
      }
      for (std::size_t z = 0; z < domain.nz; ++z) {
        domain.solid[(z * domain.ny + y) * domain.nx + x] = 1;
      }
    }
  }
}

void make_packed_cylinder(Domain& domain, const Options& options) {
  const double radius = domain.sphere_radius;
  require(domain.nz > 2 * options.plenum + static_cast<std::size_t>(std::ceil(2 * radius)),
          "no room for a bed: --nz must exceed twice --plenum by a sphere's diameter");
  require(options.plenum >= 2, "--plenum must be at least 2: the pressure is taken in front of and behind the bed");
  require(radius >= 2 && 2 * radius <= domain.cylinder_radius,
          "--sphere-radius must lie between 2 and half the cylinder's radius");
  const double bottom = static_cast<double>(options.plenum);
  const double top = static_cast<double>(domain.nz - options.plenum);
  const double bed_volume = std::numbers::pi * domain.cylinder_radius * domain.cylinder_radius * (top - bottom);
  const double sphere_volume = 4.0 / 3.0 * std::numbers::pi * radius * radius * radius;
  const auto count = static_cast<std::size_t>(options.solid_fraction * bed_volume / sphere_volume);
  require(count >= 1, "the bed has room for no sphere: raise --solid-fraction or --nz");
  const Container container{0.5 * static_cast<double>(domain.nx), 0.5 * static_cast<double>(domain.ny),
                            domain.cylinder_radius - radius, bottom + radius, top - radius};
  domain.spheres = pack(count, radius, container, options.seed);
  domain.inlet_plane = options.plenum - 1;
  domain.outlet_plane = domain.nz - options.plenum;
}

}  // namespace

Domain make_domain(const Options& options) {
  Domain domain;
  domain.nx = options.nx;
  domain.ny = options.ny;
  domain.nz = options.nz;
  require(std::min(domain.nx, domain.ny) >= 4 && domain.nz >= 1, "the grid must have at least 4 x 4 x 1 cells");
  domain.solid.assign(domain.nx * domain.ny * domain.nz, 0);
  domain.inlet_plane = 0;
  domain.outlet_plane = domain.nz;
  if (options.geometry == "packed-cylinder" || options.geometry == "empty-cylinder") {
    require(domain.nx == domain.ny, "a cylinder needs --nx equal to --ny");
    domain.cylinder_radius = 0.5 * static_cast<double>(domain.nx) - 1.0;
    fill_cylinder_wall(domain);
    if (options.geometry == "packed-cylinder") {
      domain.sphere_radius = options.sphere_radius;
      make_packed_cylinder(domain, options);
    }
  } else if (options.geometry == "duct") {
    domain.column_area = domain.nx * domain.ny;  // the walls lie just outside the grid
  } else if (options.geometry == "sphere-array") {
    domain.periodic_across = true;
    domain.sphere_radius = options.sphere_radius;
    domain.column_area = domain.nx * domain.ny;
    require(2 * domain.sphere_radius <= static_cast<double>(std::min({domain.nx, domain.ny, domain.nz})),
            "--sphere-radius must be at most half the grid: spheres of the array do not overlap");
    domain.spheres = {{0.5 * static_cast<double>(domain.nx), 0.5 * static_cast<double>(domain.ny),
                       0.5 * static_cast<double>(domain.nz)}};
  } else {
    throw std::invalid_argument("no geometry is called " + options.geometry);
  }
  fill_spheres(domain);
  std::size_t fluid = 0;
  const std::size_t plane = domain.nx * domain.ny;
  for (std::size_t z = domain.inlet_plane; z < domain.outlet_plane; ++z) {
    fluid +=
        static_cast<std::size_t>(std::count(domain.solid.begin() + static_cast<std::ptrdiff_t>(z * plane),
                                            domain.solid.begin() + static_cast<std::ptrdiff_t>((z + 1) * plane), 0));
  }
  domain.porosity =
      static_cast<double>(fluid) / static_cast<double>(domain.column_area * (domain.outlet_plane - domain.inlet_plane));
  return domain;
}

}  // namespace packed_cylinder
