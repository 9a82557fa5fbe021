// SPDX-License-Identifier: Apache-2.0
// Which parts of a reservation's segments are free, and which writer incarnation each segment belongs to. Pure
// bookkeeping in units of 4 KiB: no input or output.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace forebay::server {

/// A run of bytes in a segment, a multiple of 4 KiB.
struct Extent {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  bool operator==(const Extent&) const = default;
};

inline constexpr std::uint64_t space_unit_bytes = 4096;

/// Disjoint half-open ranges of bytes that touch are kept as one.
class RangeSet {
 public:
  /// False, and nothing changes, if any of it is in the set already.
  bool insert(std::uint64_t offset, std::uint64_t length);
  /// False, and nothing changes, if not all of it is in the set.
  bool erase(std::uint64_t offset, std::uint64_t length);
  bool contains(std::uint64_t offset, std::uint64_t length) const;
  /// True if any of it is in the set.
  bool overlaps(std::uint64_t offset, std::uint64_t length) const;
  const std::map<std::uint64_t, std::uint64_t>& ranges() const noexcept { return ranges_; }
  std::uint64_t total() const noexcept { return total_; }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // offset → length
  std::uint64_t total_ = 0;
};

/// Who writes a segment: a rank of one incarnation of a stream's writer group.
struct Owner {
  std::uint64_t stream = 0;  ///< the server's number for the stream, never 0
  std::uint32_t incarnation = 0;
  std::uint32_t rank = 0;

  auto operator<=>(const Owner&) const = default;
  bool same_group(const Owner& other) const noexcept {
    return stream == other.stream && incarnation == other.incarnation;
  }
};

/// Segments from `begin` on, without `end`.
struct SegmentSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  bool contains(std::uint32_t segment) const noexcept { return begin <= segment && segment < end; }
};

/// Of a segment that somebody may have written before the server was restarted, of whom nothing is known.
inline constexpr Owner unknown_owner{};

class SpaceMap {
 public:
  SpaceMap(std::uint32_t segments, std::uint64_t segment_bytes);

  /// Whole multiples of 4 KiB within a segment.
  bool is_valid(const Extent& extent) const noexcept;

  std::optional<Owner> owner(std::uint32_t segment) const;
  void set_owner(std::uint32_t segment, std::optional<Owner> owner);

  /// Marks free space as used; false, and nothing changes, if any of it is used or out of bounds.
  bool take(const Extent& extent);
  /// Marks what is free of this extent as used, and returns it.
  std::vector<Extent> take_free(const Extent& extent);
  /// Gives used space back; the next allocation of the segment's owner gets it first.
  void release(const Extent& extent);

  /// Space for `owner`: what was released last, then more of its segments, then segments without an owner (named in
  /// `new_segments`; they are the owner's from then on), then free space in its group's other segments.
  /// Takes all of `bytes` (rounded up to 4 KiB) or nothing. In order of place.
  std::optional<std::vector<Extent>> allocate(const Owner& owner, std::uint64_t bytes,
                                              std::vector<std::uint32_t>& new_segments) {
    return allocate(owner, bytes, new_segments, {0, segment_count()});
  }
  /// The same, in these segments alone.
  std::optional<std::vector<Extent>> allocate(const Owner& owner, std::uint64_t bytes,
                                              std::vector<std::uint32_t>& new_segments, const SegmentSpan& within);
  /// How much of these segments allocate() can give to the owner.
  std::uint64_t free_bytes_for(const Owner& owner, const SegmentSpan& within) const;

  /// Takes a segment out of use: what is free in it, now or later, is nobody's.
  void close(std::uint32_t segment);
  /// Takes a closed one into use again.
  void reopen(std::uint32_t segment);
  bool is_closed(std::uint32_t segment) const { return segments_.at(segment).closed; }
  /// Space in closed segments that nobody holds.
  std::uint64_t closed_bytes() const noexcept;

  /// Without what lies in closed segments.
  std::uint64_t free_bytes() const noexcept { return free_bytes_; }
  std::uint64_t total_bytes() const noexcept { return segment_bytes_ * segments_.size(); }
  std::uint64_t free_bytes_in(std::uint32_t segment) const;
  /// What nobody holds in a segment, be it closed or not.
  const RangeSet& unheld(std::uint32_t segment) const { return segments_.at(segment).free; }
  std::uint32_t segment_count() const noexcept { return static_cast<std::uint32_t>(segments_.size()); }
  bool is_whole_free(std::uint32_t segment) const;

  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;

 private:
  friend struct InvariantBreaker;  // of a test
  struct Segment {
    RangeSet free;
    std::optional<Owner> owner;
    bool closed = false;
  };
  void take_from(std::uint32_t segment, std::uint64_t& bytes_left, std::vector<Extent>& taken);
  void take_recent(const Owner& owner, const SegmentSpan& within, std::uint64_t& bytes_left,
                   std::vector<Extent>& taken);

  std::uint64_t segment_bytes_;
  std::vector<Segment> segments_;
  std::uint64_t free_bytes_ = 0;
  /// Released space, newest last: pages still in the cache are written about twice as fast. Hints only: checked against
  /// `free`.
  std::map<Owner, std::deque<Extent>> recent_;
};

}  // namespace forebay::server
