// SPDX-License-Identifier: Apache-2.0
// The D3Q19 velocity set: directions, weights and opposites, in the order in which populations are stored and written.
#pragma once

#include <array>
#include <cstddef>

namespace packed_cylinder {

inline constexpr std::size_t directions = 19;

struct Direction {
  int x, y, z;
  double weight;
};

// Direction 0 rests; after it each odd direction is followed by its opposite.
inline constexpr std::array<Direction, directions> lattice{{
    {0, 0, 0, 1.0 / 3.0},    {1, 0, 0, 1.0 / 18.0},  {-1, 0, 0, 1.0 / 18.0}, {0, 1, 0, 1.0 / 18.0},
    {0, -1, 0, 1.0 / 18.0},  {0, 0, 1, 1.0 / 18.0},  {0, 0, -1, 1.0 / 18.0}, {1, 1, 0, 1.0 / 36.0},
    {-1, -1, 0, 1.0 / 36.0}, {1, -1, 0, 1.0 / 36.0}, {-1, 1, 0, 1.0 / 36.0}, {1, 0, 1, 1.0 / 36.0},
    {-1, 0, -1, 1.0 / 36.0}, {1, 0, -1, 1.0 / 36.0}, {-1, 0, 1, 1.0 / 36.0}, {0, 1, 1, 1.0 / 36.0},
    {0, -1, -1, 1.0 / 36.0}, {0, 1, -1, 1.0 / 36.0}, {0, -1, 1, 1.0 / 36.0},
}};

constexpr std::size_t opposite(std::size_t q) {
  return q == 0 ? 0 : (q % 2 == 1 ? q + 1 : q - 1);
}

// The five populations that leave a slab through its upper and through its lower face.
inline constexpr std::array<std::size_t, 5> rising{5, 11, 14, 15, 18};
inline constexpr std::array<std::size_t, 5> falling{6, 12, 13, 16, 17};

}  // namespace packed_cylinder
