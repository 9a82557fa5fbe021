// SPDX-License-Identifier: Apache-2.0
// Boxes inside N-d arrays in C order: checks, intersections, and the contiguous rows that a box is made of, with inner
// dimensions that are covered whole merged into one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <forebay/result.h>
#include <forebay/types.h>

#include "protocol/step_metadata.h"

namespace forebay::client {

using Extents = std::span<const std::uint64_t>;

/// invalid_argument, naming `what`, unless start + count lies within `shape` in every dimension and all have the same
/// number of them.
Result<void> check_box(Extents start, Extents count, Extents shape, std::string_view what);

/// "{0, 16} + {4, 4}" for messages.
std::string box_text(Extents start, Extents count);

/// A box of the same extents inside each of two arrays.
struct BoxPair {
  Extents count;        ///< of the box
  Extents first_shape;  ///< of the array that it lies in
  Extents first_start;
  Extents second_shape;
  Extents second_start;
};

/// Calls `visit(first, second, length)` for each row of the box, in elements: both offsets and the row's length. Rows
/// are as long as both arrays allow. A box without elements has no rows. At most dimensions_max dimensions.
template <class Visit>
void for_each_row(const BoxPair& box, Visit&& visit) {
  const std::size_t dimensions = box.count.size();
  for (std::uint64_t extent : box.count) {
    if (extent == 0) return;
  }
  // A dimension joins the one outside it if it is covered whole in both arrays.
  std::size_t inner = dimensions;
  std::uint64_t row = 1;
  while (inner > 0) {
    --inner;
    row *= box.count[inner];
    if (box.count[inner] != box.first_shape[inner] || box.count[inner] != box.second_shape[inner]) break;
  }

  std::array<std::uint64_t, protocol::dimensions_max> first_stride{};
  std::array<std::uint64_t, protocol::dimensions_max> second_stride{};
  std::array<std::uint64_t, protocol::dimensions_max> index{};
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t first_step = 1;
  std::uint64_t second_step = 1;
  for (std::size_t d = dimensions; d-- > 0;) {
    first_stride[d] = first_step;
    second_stride[d] = second_step;
    first += box.first_start[d] * first_step;
    second += box.second_start[d] * second_step;
    first_step *= box.first_shape[d];
    second_step *= box.second_shape[d];
  }
  while (true) {
    visit(first, second, row);
    std::size_t d = inner;
    while (true) {
      if (d == 0) return;
      --d;
      first += first_stride[d];
      second += second_stride[d];
      if (++index[d] < box.count[d]) break;
      first -= box.count[d] * first_stride[d];
      second -= box.count[d] * second_stride[d];
      index[d] = 0;
    }
  }
}

/// Where a block and a wanted box meet. The arrays live as long as this.
struct Intersection {
  std::array<std::uint64_t, protocol::dimensions_max> count{};
  std::array<std::uint64_t, protocol::dimensions_max> in_block{};  ///< start inside the block
  std::array<std::uint64_t, protocol::dimensions_max> in_box{};    ///< start inside the box
};

/// Nothing if they share no element.
std::optional<Intersection> intersect(Extents block_start, Extents block_count, Extents box_start,
                                      Extents box_count) noexcept;

}  // namespace forebay::client
