// SPDX-License-Identifier: Apache-2.0
#include "space/space_map.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include <fmt/format.h>

#include "base/bounds.h"
#include "base/invariant.h"

namespace forebay::server {
namespace {

constexpr std::size_t recent_extents_max = 4096;

/// In order of place, with those that touch in one: a block over several segments can then be mapped as one array.
std::vector<Extent> joined(std::vector<Extent> extents) {
  std::ranges::sort(extents, {}, [](const Extent& extent) { return std::pair(extent.segment, extent.offset); });
  std::vector<Extent> found;
  for (const Extent& extent : extents) {
    if (!found.empty() && found.back().segment == extent.segment &&
        found.back().offset + found.back().length == extent.offset) {
      found.back().length += extent.length;
    } else {
      found.push_back(extent);
    }
  }
  return found;
}

}  // namespace

bool RangeSet::insert(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return true;
  auto next = ranges_.lower_bound(offset);
  if (next != ranges_.end() && next->first < offset + length) return false;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second > offset) return false;
  }
  total_ += length;
  if (next != ranges_.end() && next->first == offset + length) {
    length += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return true;
    }
  }
  ranges_.emplace_hint(next, offset, length);
  return true;
}

bool RangeSet::contains(std::uint64_t offset, std::uint64_t length) const {
  if (length == 0) return true;
  auto found = ranges_.upper_bound(offset);
  if (found == ranges_.begin()) return false;
  --found;
  return found->first + found->second >= offset + length;
}

bool RangeSet::overlaps(std::uint64_t offset, std::uint64_t length) const {
  const auto next = ranges_.lower_bound(offset);
  if (next != ranges_.end() && next->first < offset + length) return true;
  if (next == ranges_.begin()) return false;
  const auto before = std::prev(next);
  return before->first + before->second > offset;
}

bool RangeSet::erase(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return true;
  if (!contains(offset, length)) return false;
  const auto found = std::prev(ranges_.upper_bound(offset));
  const std::uint64_t start = found->first;
  const std::uint64_t end = found->first + found->second;
  ranges_.erase(found);
  if (start < offset) ranges_.emplace(start, offset - start);
  if (offset + length < end) ranges_.emplace(offset + length, end - offset - length);
  total_ -= length;
  return true;
}

SpaceMap::SpaceMap(std::uint32_t segments, std::uint64_t segment_bytes)
    : segment_bytes_(segment_bytes), segments_(segments) {
  for (Segment& segment : segments_) segment.free.insert(0, segment_bytes);
  free_bytes_ = segment_bytes * segments;
}

bool SpaceMap::is_valid(const Extent& extent) const noexcept {
  return extent.segment < segments_.size() && extent.length > 0 && extent.offset % space_unit_bytes == 0 &&
         extent.length % space_unit_bytes == 0 && range_within(extent.offset, extent.length, segment_bytes_);
}

std::optional<Owner> SpaceMap::owner(std::uint32_t segment) const {
  return segments_.at(segment).owner;
}

void SpaceMap::set_owner(std::uint32_t segment, std::optional<Owner> owner) {
  const auto before = std::exchange(segments_.at(segment).owner, owner);
  if (!before || before == owner) return;
  const bool owns_others = std::ranges::any_of(segments_, [&](const Segment& other) { return other.owner == before; });
  if (!owns_others) recent_.erase(*before);
}

bool SpaceMap::take(const Extent& extent) {
  if (!is_valid(extent) || !segments_[extent.segment].free.erase(extent.offset, extent.length)) return false;
  if (!segments_[extent.segment].closed) free_bytes_ -= extent.length;
  return true;
}

std::vector<Extent> SpaceMap::take_free(const Extent& extent) {
  std::vector<Extent> taken;
  if (!is_valid(extent)) return taken;
  const std::uint64_t end = extent.offset + extent.length;
  for (const auto& [offset, length] : segments_[extent.segment].free.ranges()) {
    const std::uint64_t first = std::max(offset, extent.offset);
    const std::uint64_t last = std::min(offset + length, end);
    if (first < last) taken.push_back({extent.segment, first, last - first});
  }
  for (const Extent& part : taken) take(part);
  return taken;
}

void SpaceMap::release(const Extent& extent) {
  Segment& segment = segments_.at(extent.segment);
  const bool was_used = segment.free.insert(extent.offset, extent.length);
  assert(was_used);
  if (!was_used || segment.closed) return;
  free_bytes_ += extent.length;
  if (!segment.owner) return;
  auto& recent = recent_[*segment.owner];
  recent.push_back(extent);
  if (recent.size() > recent_extents_max) recent.pop_front();
}

void SpaceMap::take_recent(const Owner& owner, const SegmentSpan& within, std::uint64_t& bytes_left,
                           std::vector<Extent>& taken) {
  const auto found = recent_.find(owner);
  if (found == recent_.end()) return;
  auto& recent = found->second;
  std::deque<Extent> elsewhere;
  while (bytes_left > 0 && !recent.empty()) {
    Extent extent = recent.back();
    recent.pop_back();
    if (!within.contains(extent.segment)) {
      elsewhere.push_front(extent);
      continue;
    }
    const Segment& segment = segments_[extent.segment];
    if (segment.closed || segment.owner != owner || !segment.free.contains(extent.offset, extent.length)) continue;
    if (extent.length > bytes_left) {
      recent.push_back({extent.segment, extent.offset + bytes_left, extent.length - bytes_left});
      extent.length = bytes_left;
    }
    take(extent);
    bytes_left -= extent.length;
    taken.push_back(extent);
  }
  recent.insert(recent.end(), elsewhere.begin(), elsewhere.end());
  if (recent.empty()) recent_.erase(found);
}

std::uint64_t SpaceMap::free_bytes_for(const Owner& owner, const SegmentSpan& within) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t segment = within.begin; segment < within.end; ++segment) {
    const auto& has = segments_[segment].owner;
    if (has ? has->same_group(owner) : is_whole_free(segment)) bytes += free_bytes_in(segment);
  }
  return bytes;
}

void SpaceMap::take_from(std::uint32_t segment, std::uint64_t& bytes_left, std::vector<Extent>& taken) {
  if (segments_[segment].closed) return;
  while (bytes_left > 0 && !segments_[segment].free.ranges().empty()) {
    const auto [offset, length] = *segments_[segment].free.ranges().begin();
    const Extent extent{segment, offset, std::min(length, bytes_left)};
    take(extent);
    bytes_left -= extent.length;
    taken.push_back(extent);
  }
}

std::optional<std::vector<Extent>> SpaceMap::allocate(const Owner& owner, std::uint64_t bytes,
                                                      std::vector<std::uint32_t>& new_segments,
                                                      const SegmentSpan& within) {
  const std::size_t known = new_segments.size();
  if (bytes > free_bytes_) return std::nullopt;
  std::uint64_t left = round_up(std::max<std::uint64_t>(bytes, 1), space_unit_bytes);
  std::vector<Extent> taken;
  take_recent(owner, within, left, taken);
  for (std::uint32_t i = within.begin; left > 0 && i < within.end; ++i) {
    if (segments_[i].owner == owner) take_from(i, left, taken);
  }
  for (std::uint32_t i = within.begin; left > 0 && i < within.end; ++i) {
    if (segments_[i].owner || !is_whole_free(i)) continue;
    segments_[i].owner = owner;
    new_segments.push_back(i);
    take_from(i, left, taken);
  }
  for (std::uint32_t i = within.begin; left > 0 && i < within.end; ++i) {
    if (segments_[i].owner && segments_[i].owner->same_group(owner)) take_from(i, left, taken);
  }
  if (left == 0) return joined(std::move(taken));
  for (const Extent& extent : taken) release(extent);
  // Segments taken for nothing stay without an owner: nobody was given a descriptor of them.
  for (std::size_t i = known; i < new_segments.size(); ++i) segments_[new_segments[i]].owner.reset();
  new_segments.resize(known);
  return std::nullopt;
}

void SpaceMap::close(std::uint32_t segment) {
  Segment& closing = segments_.at(segment);
  if (std::exchange(closing.closed, true)) return;
  free_bytes_ -= closing.free.total();
}

void SpaceMap::reopen(std::uint32_t segment) {
  Segment& closed = segments_.at(segment);
  if (std::exchange(closed.closed, false)) free_bytes_ += closed.free.total();
}

std::uint64_t SpaceMap::closed_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Segment& segment : segments_) {
    if (segment.closed) bytes += segment.free.total();
  }
  return bytes;
}

std::uint64_t SpaceMap::free_bytes_in(std::uint32_t segment) const {
  return is_closed(segment) ? 0 : segments_.at(segment).free.total();
}

bool SpaceMap::is_whole_free(std::uint32_t segment) const {
  return free_bytes_in(segment) == segment_bytes_;
}

std::size_t SpaceMap::check() const {
  std::size_t items = 0;
  std::uint64_t free_bytes = 0;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    std::uint64_t total = 0;
    std::optional<std::uint64_t> end_before;
    for (const auto& [offset, length] : segment.free.ranges()) {
      const auto about = [&](const char* what) {
        return fmt::format("segment {}: {} free bytes at {} {}", i, length, offset, what);
      };
      invariant(is_valid({static_cast<std::uint32_t>(i), offset, length}), [&] { return about("are no units of it"); });
      invariant(!end_before || *end_before < offset, [&] { return about("touch those before them"); });
      end_before = offset + length;
      total += length;
    }
    invariant(total == segment.free.total(), [&] {
      return fmt::format("segment {}: {} bytes are free, counted are {}", i, total, segment.free.total());
    });
    if (!segment.closed) free_bytes += total;
    items += 1 + segment.free.ranges().size();
  }
  invariant(free_bytes == free_bytes_,
            [&] { return fmt::format("{} bytes are free, counted are {}", free_bytes, free_bytes_); });
  return items;
}

}  // namespace forebay::server
