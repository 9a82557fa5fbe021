// SPDX-License-Identifier: Apache-2.0
// A writer rank's space: which extents it was granted, and what of them the open step uses. Blocks of a page and more
// take whole pages, from several extents if need be; smaller ones are packed into runs of pages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <forebay/protocol/step_metadata_generated.h>

namespace forebay::client {

/// A run of bytes in a segment, and the member of the reservation that holds the segment.
struct Extent {
  std::uint32_t segment = 0;
  std::uint16_t member = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  std::uint64_t end() const noexcept { return offset + length; }
  bool operator==(const Extent&) const = default;
};

/// The same extents, sorted by place, neighbours merged into one.
std::vector<Extent> merged(std::vector<Extent> extents);

/// Blocks up to this size lie on the reservation's home.
inline constexpr std::uint64_t home_block_bytes_max = std::uint64_t{64} << 10;

/// Which of the held space is meant.
enum class SpaceKind : std::uint8_t {
  anywhere,
  at_home,    ///< on the reservation's home: metadata, attribute sets, small blocks
  elsewhere,  ///< on its other members: larger blocks
};

class Space {
 public:
  /// Adds free space; offset and length are multiples of 4096 and nothing of it is held already.
  void grant(const Extent& extent);

  /// Larger blocks are taken from all members side by side.
  void set_stripe(std::uint64_t bytes) noexcept { stripe_bytes_ = bytes; }

  /// Takes `bytes` (more than 0) in whole pages and appends the pieces, whose lengths add up to `bytes`. False, with
  /// nothing taken, if there is too little.
  bool take_pages(std::uint64_t bytes, std::vector<format::Piece>& pieces, SpaceKind kind = SpaceKind::anywhere);
  /// Takes `bytes` in one piece, aligned to 64, sharing pages with other small pieces. Nothing if there is too little;
  /// pieces of more than 256 KiB may not be found in space that is cut into short extents.
  std::optional<format::Piece> take_small(std::uint64_t bytes, SpaceKind kind = SpaceKind::anywhere);

  /// As take_pages() of whole pages, for what is to outlive the step: it is not part of used().
  bool take_apart(std::uint64_t bytes, std::vector<format::Piece>& pieces, SpaceKind kind = SpaceKind::anywhere);
  /// What was taken apart in this step, in the order of its pieces.
  const std::vector<Extent>& apart() const noexcept { return apart_; }
  /// What was taken apart in this step is free again.
  void return_apart();

  /// Gives back the unused pages of small pieces. Called before used() is asked for the part.
  void trim();
  /// What the open step uses, merged.
  std::vector<Extent> used() const { return merged(used_); }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  /// Of these, what does not lie on the home.
  std::uint64_t used_bytes_elsewhere() const noexcept;
  std::uint64_t free_bytes() const noexcept { return free_bytes_; }
  std::uint64_t free_bytes(SpaceKind kind) const noexcept;
  /// What is free on other members than the home is held no longer.
  void drop_elsewhere();
  /// All that is held, the open step's and what was taken apart in it included, merged.
  std::vector<Extent> held() const;

  /// What the step used, or took apart, is no longer held: it has committed, or was given up and grant() was told of
  /// it.
  void end_step();

 private:
  Extent take_run(std::size_t index, std::uint64_t length);
  /// Takes free space from the front of an extent.
  Extent take_free(std::size_t index, std::uint64_t length);

  /// The part of take_pages() that this member gives, or any: there is as much.
  void take_pages_of(std::optional<std::uint16_t> member, std::uint64_t bytes, std::vector<format::Piece>& pieces,
                     SpaceKind kind);

  std::uint64_t stripe_bytes_ = 0;
  std::vector<Extent> free_;  // in the order granted, so that what the server gave first is used first
  std::vector<Extent> used_;  // in whole pages
  std::vector<Extent> apart_;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
  // The run of pages that small pieces are taken from, part of used_.
  std::uint32_t small_segment_ = 0;
  std::uint16_t small_member_ = 0;
  std::uint64_t small_next_ = 0;
  std::uint64_t small_end_ = 0;
  std::uint64_t small_bytes_ = 0;           // by this step's small runs, in whole pages
  std::uint64_t small_bytes_expected_ = 0;  // what the last step's came to
};

}  // namespace forebay::client
