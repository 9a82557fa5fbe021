// SPDX-License-Identifier: Apache-2.0
#include "client/writing/space.h"

#include <algorithm>

#include "base/bounds.h"
#include "base/side_by_side.h"
#include "protocol/step_metadata.h"

namespace forebay::client {

using protocol::page_bytes;
using protocol::small_block_alignment;

namespace {

// A run of pages for small pieces grows with the step: the first ones stay short, so that a step with a single number
// does not scatter what follows.
constexpr std::uint64_t small_run_first_bytes = std::uint64_t{16} << 10;
constexpr std::uint64_t small_run_most_bytes = std::uint64_t{256} << 10;

bool is_of(const Extent& extent, SpaceKind kind) noexcept {
  return kind == SpaceKind::anywhere || (extent.member == 0) == (kind == SpaceKind::at_home);
}

}  // namespace

// What needs memory comes first in each change: a list and its sum never differ, and no page that a step uses is
// forgotten.

std::vector<Extent> merged(std::vector<Extent> extents) {
  std::ranges::sort(extents, [](const Extent& a, const Extent& b) {
    return a.segment != b.segment ? a.segment < b.segment : a.offset < b.offset;
  });
  std::vector<Extent> result;
  for (const Extent& extent : extents) {
    if (!result.empty() && result.back().segment == extent.segment && result.back().end() == extent.offset) {
      result.back().length += extent.length;
    } else {
      result.push_back(extent);
    }
  }
  return result;
}

void Space::grant(const Extent& extent) {
  const auto neighbour = std::ranges::find_if(free_, [&](const Extent& other) {
    return other.segment == extent.segment && (other.end() == extent.offset || extent.end() == other.offset);
  });
  if (neighbour == free_.end()) {
    free_.push_back(extent);
  } else {
    neighbour->offset = std::min(neighbour->offset, extent.offset);
    neighbour->length += extent.length;
  }
  free_bytes_ += extent.length;
}

Extent Space::take_free(std::size_t index, std::uint64_t length) {
  Extent& source = free_[index];
  const Extent taken{source.segment, source.member, source.offset, length};
  source.offset += length;
  source.length -= length;
  if (source.length == 0) free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(index));
  free_bytes_ -= length;
  return taken;
}

Extent Space::take_run(std::size_t index, std::uint64_t length) {
  const Extent& source = free_[index];
  if (!used_.empty() && used_.back().segment == source.segment && used_.back().end() == source.offset) {
    used_.back().length += length;
  } else {
    used_.push_back({source.segment, source.member, source.offset, length});
  }
  used_bytes_ += length;
  return take_free(index, length);
}

std::uint64_t Space::free_bytes(SpaceKind kind) const noexcept {
  if (kind == SpaceKind::anywhere) return free_bytes_;
  std::uint64_t bytes = 0;
  for (const Extent& extent : free_)
    if (is_of(extent, kind)) bytes += extent.length;
  return bytes;
}

std::uint64_t Space::used_bytes_elsewhere() const noexcept {
  std::uint64_t bytes = 0;
  for (const Extent& extent : used_)
    if (extent.member != 0) bytes += extent.length;
  return bytes;
}

void Space::drop_elsewhere() {
  std::erase_if(free_, [](const Extent& extent) { return extent.member != 0; });
  free_bytes_ = 0;
  for (const Extent& extent : free_) free_bytes_ += extent.length;
}

bool Space::take_pages(std::uint64_t bytes, std::vector<format::Piece>& pieces, SpaceKind kind) {
  const std::uint64_t free = free_bytes(kind);
  if (bytes > free) return false;
  const std::uint64_t whole = round_up(bytes, page_bytes);
  if (whole > free) return false;
  std::vector<std::pair<std::uint16_t, std::uint64_t>> members;
  if (stripe_bytes_ > 0 && whole > stripe_bytes_) {
    for (const Extent& extent : free_) {
      if (!is_of(extent, kind)) continue;
      const auto found = std::ranges::find(members, extent.member, &std::pair<std::uint16_t, std::uint64_t>::first);
      if (found == members.end()) {
        members.emplace_back(extent.member, extent.length);
      } else {
        found->second += extent.length;
      }
    }
  }
  if (members.size() < 2) {
    take_pages_of(std::nullopt, bytes, pieces, kind);
    return true;
  }
  // Page by page as far as the last: only the block's last piece may end within one.
  std::uint64_t left = bytes;
  for (const auto& [member, share] : shares_side_by_side(whole, members, stripe_bytes_)) {
    const std::uint64_t part = std::min(left, share);
    take_pages_of(member, part, pieces, kind);
    left -= part;
  }
  return true;
}

void Space::take_pages_of(std::optional<std::uint16_t> member, std::uint64_t bytes, std::vector<format::Piece>& pieces,
                          SpaceKind kind) {
  const auto is_meant = [&](const Extent& extent) {
    return is_of(extent, kind) && extent.member == member.value_or(extent.member);
  };
  const std::uint64_t whole = round_up(bytes, page_bytes);
  // In one piece where that is possible: it reads and maps fastest.
  for (std::size_t i = 0; i < free_.size(); ++i) {
    if (free_[i].length < whole || !is_meant(free_[i])) continue;
    const Extent taken = take_run(i, whole);
    pieces.emplace_back(taken.segment, taken.member, 0, taken.offset, bytes);
    return;
  }
  for (std::size_t i = 0; bytes > 0;) {
    if (!is_meant(free_[i])) {
      ++i;
      continue;
    }
    const Extent taken = take_run(i, std::min(free_[i].length, round_up(bytes, page_bytes)));
    const std::uint64_t length = std::min(taken.length, bytes);
    pieces.emplace_back(taken.segment, taken.member, 0, taken.offset, length);
    bytes -= length;
  }
}

bool Space::take_apart(std::uint64_t bytes, std::vector<format::Piece>& pieces, SpaceKind kind) {
  if (bytes > free_bytes(kind)) return false;
  apart_.reserve(apart_.size() + free_.size());
  pieces.reserve(pieces.size() + free_.size());
  // In one piece where that is possible: steps repeat where it lies.
  const auto find = [&](std::uint64_t least) {
    return std::ranges::find_if(free_,
                                [&](const Extent& extent) { return extent.length >= least && is_of(extent, kind); });
  };
  for (std::uint64_t left = bytes; left > 0;) {
    const auto large = find(left);
    const auto index = static_cast<std::size_t>((large == free_.end() ? find(1) : large) - free_.begin());
    const Extent taken = take_free(index, std::min(free_[index].length, left));
    apart_.push_back(taken);
    pieces.emplace_back(taken.segment, taken.member, 0, taken.offset, taken.length);
    left -= taken.length;
  }
  return true;
}

void Space::return_apart() {
  free_.reserve(free_.size() + apart_.size());
  for (const Extent& extent : apart_) grant(extent);
  apart_.clear();
}

std::optional<format::Piece> Space::take_small(std::uint64_t bytes, SpaceKind kind) {
  const std::uint64_t length = round_up(bytes, small_block_alignment);
  if (length > small_end_ - small_next_) {
    const std::uint64_t least = round_up(bytes, page_bytes);
    std::uint64_t wanted = std::clamp(small_bytes_, small_run_first_bytes, small_run_most_bytes);
    // A step like the last one gets one run that is used to its end.
    if (small_bytes_ < small_bytes_expected_)
      wanted = std::min(small_bytes_expected_ - small_bytes_, small_run_most_bytes);
    wanted = std::max(wanted, least);
    // The run goes on where it is, else in the first extent that has room.
    const auto continues = std::ranges::find_if(free_, [&](const Extent& extent) {
      return small_end_ > 0 && extent.segment == small_segment_ && extent.offset == small_end_ &&
             extent.length >= least && is_of(extent, kind);
    });
    const auto found = continues != free_.end() ? continues : std::ranges::find_if(free_, [&](const Extent& extent) {
      return extent.length >= least && is_of(extent, kind);
    });
    if (found == free_.end()) return std::nullopt;
    const bool goes_on = continues != free_.end();
    const Extent run = take_run(static_cast<std::size_t>(found - free_.begin()), std::min(found->length, wanted));
    small_bytes_ += run.length;
    if (!goes_on) {
      small_segment_ = run.segment;
      small_member_ = run.member;
      small_next_ = run.offset;
    }
    small_end_ = run.end();
  }
  const format::Piece piece(small_segment_, small_member_, 0, small_next_, bytes);
  small_next_ += length;
  return piece;
}

void Space::trim() {
  const std::uint64_t first_unused = round_up(small_next_, page_bytes);
  if (first_unused < small_end_) {
    const Extent unused{small_segment_, small_member_, first_unused, small_end_ - first_unused};
    // The run's end may lie inside a merged entry of used_, with pages of large blocks behind it.
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const Extent entry = used_[i];
      if (entry.segment != unused.segment || !(entry.offset <= unused.offset && unused.end() <= entry.end())) continue;
      const Extent behind{entry.segment, entry.member, unused.end(), entry.end() - unused.end()};
      if (behind.length > 0) used_.push_back(behind);
      used_[i].length = unused.offset - entry.offset;
      if (used_[i].length == 0) used_.erase(used_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    used_bytes_ -= unused.length;
    small_bytes_ -= unused.length;
    small_end_ = first_unused;
    grant(unused);
  }
}

std::vector<Extent> Space::held() const {
  std::vector<Extent> all = free_;
  all.insert(all.end(), used_.begin(), used_.end());
  all.insert(all.end(), apart_.begin(), apart_.end());
  return merged(std::move(all));
}

void Space::end_step() {
  small_bytes_expected_ = small_bytes_;
  used_.clear();
  apart_.clear();
  used_bytes_ = 0;
  small_next_ = 0;
  small_end_ = 0;
  small_bytes_ = 0;
}

}  // namespace forebay::client
