// SPDX-License-Identifier: Apache-2.0
#include "written_blocks.h"

#include <algorithm>
#include <cstddef>

namespace forebay::python {

namespace {

// The sums do not overflow.
bool share_elements(const Box& one, const Dimensions& start, const Dimensions& count) {
  for (std::size_t axis = 0; axis < count.size(); ++axis) {
    if (one.start[axis] >= start[axis] + count[axis] || start[axis] >= one.start[axis] + one.count[axis]) return false;
  }
  return true;
}

std::string text_of(const Dimensions& start, const Dimensions& count) {
  const auto listed = [](const Dimensions& extents) {
    std::string text;
    for (const std::uint64_t extent : extents) text += (text.empty() ? "" : ", ") + std::to_string(extent);
    return "(" + text + ")";
  };
  return "start " + listed(start) + ", count " + listed(count);
}

// Whether it can be a block of a global array, with elements: what cannot is refused where it is written.
bool has_place(const Dimensions& start, const Dimensions& count) {
  if (count.empty() || start.size() != count.size()) return false;
  for (std::size_t axis = 0; axis < count.size(); ++axis) {
    if (count[axis] == 0 || start[axis] + count[axis] < start[axis]) return false;
  }
  return true;
}

}  // namespace

Result<void> WrittenBlocks::check(const std::string& name, ShapeKind kind, const Dimensions& start,
                                  const Dimensions& count) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return {};
  const Places& places = found->second;
  const std::string where = "variable '" + name + "'";
  if (kind == ShapeKind::global_value && places.is_single_value) {
    return fail(ErrorCode::invalid_argument, "the value was written before in this step: write it once a step", where);
  }
  if (kind != ShapeKind::global_array || places.by_first_start.empty() || !has_place(start, count)) return {};
  const std::uint64_t reach = places.first_count_max - 1;
  auto candidate = places.by_first_start.lower_bound(start.front() > reach ? start.front() - reach : 0);
  const auto end = places.by_first_start.lower_bound(start.front() + count.front());
  for (; candidate != end; ++candidate) {
    const Box& box = candidate->second;
    if (box.count.size() != count.size() || !share_elements(box, start, count)) continue;
    return fail(ErrorCode::invalid_argument,
                "the block at " + text_of(start, count) + " shares elements with the one at " +
                    text_of(box.start, box.count) +
                    ", written before by this rank in this step: write each element once, without ghost cells",
                where);
  }
  return {};
}

void WrittenBlocks::add(const std::string& name, ShapeKind kind, const Dimensions& start, const Dimensions& count) {
  if (kind == ShapeKind::global_value) {
    variables_[name].is_single_value = true;
  } else if (kind == ShapeKind::global_array && has_place(start, count)) {
    Places& places = variables_[name];
    places.by_first_start.emplace(start.front(), Box{start, count});
    places.first_count_max = std::max(places.first_count_max, count.front());
  }
}

}  // namespace forebay::python
