// SPDX-License-Identifier: Apache-2.0
#include "client/reading/boxes.h"

#include <algorithm>
#include <string>

#include "base/bounds.h"

namespace forebay::client {
namespace {

std::string text_of(Extents extents) {
  std::string text = "{";
  for (std::uint64_t extent : extents) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "}";
}

}  // namespace

std::string box_text(Extents start, Extents count) {
  return text_of(start) + " + " + text_of(count);
}

Result<void> check_box(Extents start, Extents count, Extents shape, std::string_view what) {
  bool fits = start.size() == shape.size() && count.size() == shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) fits = range_within(start[d], count[d], shape[d]);
  if (fits) return {};
  return fail(ErrorCode::invalid_argument,
              std::string(what) + " " + box_text(start, count) + " does not lie within " + text_of(shape));
}

std::optional<Intersection> intersect(Extents block_start, Extents block_count, Extents box_start,
                                      Extents box_count) noexcept {
  Intersection result;
  for (std::size_t d = 0; d < box_count.size(); ++d) {
    const std::uint64_t from = std::max(block_start[d], box_start[d]);
    const std::uint64_t to = std::min(block_start[d] + block_count[d], box_start[d] + box_count[d]);
    if (from >= to) return std::nullopt;
    result.count[d] = to - from;
    result.in_block[d] = from - block_start[d];
    result.in_box[d] = from - box_start[d];
  }
  return result;
}

}  // namespace forebay::client
