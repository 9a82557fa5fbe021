// SPDX-License-Identifier: Apache-2.0
#include "flow.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace packed_cylinder {
namespace {

constexpr double density_at_rest = 1.0;
// 3/16 puts a half-way bounce-back wall exactly half way for a parabolic profile and makes permeability independent of
// viscosity. I. Ginzburg, F. Verhaeghe, D. d'Humieres, Commun. Comput. Phys. 3 (2008) 427-478.
constexpr double magic = 3.0 / 16.0;

double rest_population(std::size_t q, double force) {
  // Populations are kept after collision, when they carry the force's momentum once more than half; so at rest they
  // carry half.
  return lattice[q].weight * (density_at_rest + 1.5 * lattice[q].z * force);
}

// Loops over directions that are unrolled before the compiler looks for vectors in the loop over cells around them.
template <std::size_t... q>
inline void unrolled(auto&& body, std::index_sequence<q...>) {
  (body(std::integral_constant<std::size_t, q>{}), ...);
}
inline void for_each_direction(auto&& body) {
  unrolled(body, std::make_index_sequence<directions>{});
}
// The first of each pair of opposite directions.
inline void for_each_pair(auto&& body) {
  unrolled(body, std::index_sequence<1, 3, 5, 7, 9, 11, 13, 15, 17>{});
}

// Adds a component of a direction times a value, without multiplying.
template <int component>
inline void add(double& sum, double value) {
  if constexpr (component > 0) {
    sum += value;
  }
  if constexpr (component < 0) {
    sum -= value;
  }
}

}  // namespace

Slab slab_of_rank(std::size_t nz, std::size_t rank, std::size_t ranks) {
  return {nz * rank / ranks, nz * (rank + 1) / ranks};
}

Flow::Flow(const Domain& domain, Slab slab, double viscosity, double force)
    : domain_(domain),
      slab_(slab),
      viscosity_(viscosity),
      force_(force),
      row_(domain.nx + 2),
      plane_(row_ * (domain.ny + 2)),
      lattice_size_(plane_ * (slab.planes() + 2)),
      now_(directions * lattice_size_),
      to_upper_(rising.size() * plane_),
      to_lower_(to_upper_.size()),
      from_upper_(to_upper_.size()),
      from_lower_(to_upper_.size()) {
  for (std::size_t q = 0; q < directions; ++q) {
    std::fill_n(now_.begin() + static_cast<std::ptrdiff_t>(q * lattice_size_), lattice_size_,
                rest_population(q, force_));
  }
  next_ = now_;
  find_runs_and_links();
  bounce_back();
}

bool Flow::solid_at(std::ptrdiff_t x, std::ptrdiff_t y, std::ptrdiff_t z) const {
  const auto nx = static_cast<std::ptrdiff_t>(domain_.nx);
  const auto ny = static_cast<std::ptrdiff_t>(domain_.ny);
  const auto nz = static_cast<std::ptrdiff_t>(domain_.nz);
  if (!domain_.periodic_across && (x < 0 || x >= nx || y < 0 || y >= ny)) {
    return true;
  }
  return domain_.is_solid(static_cast<std::size_t>((x + nx) % nx), static_cast<std::size_t>((y + ny) % ny),
                          static_cast<std::size_t>((z + nz) % nz));
}

void Flow::find_runs_and_links() {
  for (std::size_t plane = 0; plane < slab_.planes(); ++plane) {
    const std::size_t z = slab_.begin + plane;
    for (std::size_t y = 0; y < domain_.ny; ++y) {
      for (std::size_t x = 0; x < domain_.nx; ++x) {
        if (domain_.is_solid(x, y, z)) {
          continue;
        }
        const std::size_t at = index(x, y, plane);
        const bool continues = x > 0 && !domain_.is_solid(x - 1, y, z);
        if (continues) {
          ++runs_.back().length;
        } else {
          runs_.push_back({at, 1});
        }
        for (std::size_t q = 1; q < directions; ++q) {
          const Direction& c = lattice[q];
          if (!solid_at(static_cast<std::ptrdiff_t>(x) - c.x, static_cast<std::ptrdiff_t>(y) - c.y,
                        static_cast<std::ptrdiff_t>(z) - c.z)) {
            continue;
          }
          const std::ptrdiff_t step =
              (c.z * static_cast<std::ptrdiff_t>(domain_.ny + 2) + c.y) * static_cast<std::ptrdiff_t>(row_) + c.x;
          links_.push_back({q * lattice_size_ + at - static_cast<std::size_t>(step), opposite(q) * lattice_size_ + at});
        }
      }
    }
  }
}

void Flow::load(std::span<const double> populations, Ring& ring) {
  for (std::size_t q = 0; q < directions; ++q) {
    for (std::size_t plane = 0; plane < slab_.planes(); ++plane) {
      for (std::size_t y = 0; y < domain_.ny; ++y) {
        const double* from = &populations[((q * slab_.planes() + plane) * domain_.ny + y) * domain_.nx];
        std::copy_n(from, domain_.nx, &now_[q * lattice_size_ + index(0, y, plane)]);
      }
    }
  }
  std::swap(now_, next_);  // the three passes work on what was just made
  exchange_faces(ring);
  if (domain_.periodic_across) {
    wrap_across();
  }
  std::swap(now_, next_);
  bounce_back();
}

void Flow::advance(Ring& ring) {
  for (const Run& run : runs_) {
    collide(run);
  }
  exchange_faces(ring);
  if (domain_.periodic_across) {
    wrap_across();
  }
  std::swap(now_, next_);
  bounce_back();
}

// Pulls the populations that stream into a run of cells, and relaxes them. The symmetric and antisymmetric halves of
// each pair of opposite directions have a relaxation rate of their own; the force enters both (Z. Guo, C. Zheng, B.
// Shi, Phys. Rev. E 65, 046308).
void Flow::collide(const Run& run) {
  const double rate_even = 1.0 / (3.0 * viscosity_ + 0.5);
  const double rate_odd = 1.0 / (magic / (3.0 * viscosity_) + 0.5);
  const double force = force_;
  const double force_even = 1.0 - 0.5 * rate_even;
  const double force_odd = 1.0 - 0.5 * rate_odd;
  const double* from[directions];
  double* to[directions];
  for (std::size_t q = 0; q < directions; ++q) {
    const std::ptrdiff_t step = (lattice[q].z * static_cast<std::ptrdiff_t>(domain_.ny + 2) + lattice[q].y) *
                                    static_cast<std::ptrdiff_t>(row_) +
                                lattice[q].x;
    from[q] = now_.data() + static_cast<std::ptrdiff_t>(q * lattice_size_ + run.begin) - step;
    to[q] = next_.data() + q * lattice_size_ + run.begin;
  }
#pragma GCC ivdep
  for (std::size_t i = 0; i < run.length; ++i) {
    double f[directions];
    for_each_direction([&](auto q) { f[q] = from[q][i]; });
    double density = f[0];
    double momentum_x = 0, momentum_y = 0, momentum_z = 0.5 * force;
    for_each_pair([&](auto q) {
      const double difference = f[q] - f[q + 1];
      density += f[q] + f[q + 1];
      add<lattice[q].x>(momentum_x, difference);
      add<lattice[q].y>(momentum_y, difference);
      add<lattice[q].z>(momentum_z, difference);
    });
    const double inverse = 1.0 / density;
    const double ux = momentum_x * inverse, uy = momentum_y * inverse, uz = momentum_z * inverse;
    const double square = 1.5 * (ux * ux + uy * uy + uz * uz);
    const double push = 3.0 * force_even * uz * force;
    const double rest = lattice[0].weight * density * (1.0 - square);
    to[0][i] = f[0] - rate_even * (f[0] - rest) - lattice[0].weight * push;
    for_each_pair([&](auto q) {
      constexpr double weight = lattice[q].weight;
      double along = 0, pull = 0;
      add<lattice[q].x>(along, ux);
      add<lattice[q].y>(along, uy);
      add<lattice[q].z>(along, uz);
      add<lattice[q].z>(pull, force);
      const double even = 0.5 * (f[q] + f[q + 1]) - weight * density * (1.0 + 4.5 * along * along - square);
      const double odd = 0.5 * (f[q] - f[q + 1]) - 3.0 * weight * density * along;
      const double change_even = weight * (9.0 * force_even * along * pull - push) - rate_even * even;
      const double change_odd = 3.0 * weight * force_odd * pull - rate_odd * odd;
      to[q][i] = f[q] + change_even + change_odd;
      to[q + 1][i] = f[q + 1] + change_even - change_odd;
    });
  }
}

void Flow::exchange_faces(Ring& ring) {
  const auto copy = [this](std::vector<double>& target, std::size_t target_at, const std::vector<double>& source,
                           std::size_t source_at) {
    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(source_at), plane_,
                target.begin() + static_cast<std::ptrdiff_t>(target_at));
  };
  const std::size_t top = slab_.planes() * plane_;
  for (std::size_t i = 0; i < rising.size(); ++i) {
    copy(to_upper_, i * plane_, next_, rising[i] * lattice_size_ + top);
    copy(to_lower_, i * plane_, next_, falling[i] * lattice_size_ + plane_);
  }
  ring.exchange(std::as_bytes(std::span(to_upper_)), std::as_writable_bytes(std::span(from_lower_)),
                std::as_bytes(std::span(to_lower_)), std::as_writable_bytes(std::span(from_upper_)));
  for (std::size_t i = 0; i < rising.size(); ++i) {
    copy(next_, rising[i] * lattice_size_, from_lower_, i * plane_);
    copy(next_, falling[i] * lattice_size_ + top + plane_, from_upper_, i * plane_);
  }
}

// Fills the padding around every plane, neighbours' faces included, with the opposite side.
void Flow::wrap_across() {
  for (std::size_t q = 1; q < directions; ++q) {
    for (std::size_t plane = 0; plane < slab_.planes() + 2; ++plane) {
      double* base = next_.data() + q * lattice_size_ + plane * plane_;
      for (std::size_t y = 1; y <= domain_.ny; ++y) {
        base[y * row_] = base[y * row_ + domain_.nx];
        base[y * row_ + domain_.nx + 1] = base[y * row_ + 1];
      }
      std::copy_n(base + domain_.ny * row_, row_, base);
      std::copy_n(base + row_, row_, base + (domain_.ny + 1) * row_);
    }
  }
}

void Flow::bounce_back() {
  for (const Link& link : links_) {
    now_[link.solid] = now_[link.fluid];
  }
}

Flow::Cell Flow::cell(std::size_t at, std::size_t z) const {
  double density = now_[at];
  double momentum_x = 0, momentum_y = 0, momentum_z = -0.5 * force_;  // see rest_population
  for (std::size_t q = 1; q < directions; q += 2) {
    const double forward = now_[q * lattice_size_ + at];
    const double backward = now_[(q + 1) * lattice_size_ + at];
    density += forward + backward;
    momentum_x += lattice[q].x * (forward - backward);
    momentum_y += lattice[q].y * (forward - backward);
    momentum_z += lattice[q].z * (forward - backward);
  }
  // The force stands for a pressure that falls along z; it is part of the pressure that is reported.
  const double pressure = (density - density_at_rest) / 3.0 - force_ * (static_cast<double>(z) + 0.5);
  return {density, momentum_x / density, momentum_y / density, momentum_z / density, pressure};
}

void Flow::macroscopic(std::span<float> velocity, std::span<float> pressure) const {
  std::fill(velocity.begin(), velocity.end(), 0.0F);
  std::fill(pressure.begin(), pressure.end(), 0.0F);
  for (const Run& run : runs_) {
    const std::size_t plane = run.begin / plane_ - 1;
    const std::size_t y = run.begin % plane_ / row_ - 1;
    const std::size_t x = run.begin % row_ - 1;
    const std::size_t out = (plane * domain_.ny + y) * domain_.nx + x;
    for (std::size_t i = 0; i < run.length; ++i) {
      const Cell here = cell(run.begin + i, slab_.begin + plane);
      velocity[3 * (out + i)] = static_cast<float>(here.velocity_x);
      velocity[3 * (out + i) + 1] = static_cast<float>(here.velocity_y);
      velocity[3 * (out + i) + 2] = static_cast<float>(here.velocity_z);
      pressure[out + i] = static_cast<float>(here.pressure);
    }
  }
}

void Flow::populations(std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0.0);  // what lies in solid cells depends on the slabs and means nothing
  for (const Run& run : runs_) {
    const std::size_t plane = run.begin / plane_ - 1;
    const std::size_t y = run.begin % plane_ / row_ - 1;
    const std::size_t x = run.begin % row_ - 1;
    for (std::size_t q = 0; q < directions; ++q) {
      std::copy_n(&now_[q * lattice_size_ + run.begin], run.length,
                  &out[((q * slab_.planes() + plane) * domain_.ny + y) * domain_.nx + x]);
    }
  }
}

std::vector<PlaneSums> Flow::plane_sums() const {
  std::vector<PlaneSums> sums(slab_.planes());
  for (const Run& run : runs_) {
    const std::size_t plane = run.begin / plane_ - 1;
    for (std::size_t i = 0; i < run.length; ++i) {
      const Cell here = cell(run.begin + i, slab_.begin + plane);
      sums[plane].velocity_z += here.velocity_z;
      sums[plane].pressure += here.pressure;
    }
    sums[plane].fluid_cells += static_cast<double>(run.length);
  }
  return sums;
}

}  // namespace packed_cylinder
