// SPDX-License-Identifier: Apache-2.0
// On which member of a reservation a segment lies. Numbers count through the reservation, member after member, so that
// the member follows from the number; an extent that names another one is corrupt wherever it would become bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace forebay {

class SegmentLayout {
 public:
  /// How many segments each member has. None told: one member has them all, however many there are.
  explicit SegmentLayout(std::vector<std::uint32_t> member_segments = {}) noexcept
      : member_segments_(std::move(member_segments)) {}

  /// Nothing if there is no such segment.
  std::optional<std::uint16_t> member_of(std::uint32_t segment) const noexcept {
    if (member_segments_.empty()) return 0;
    std::uint64_t end = 0;
    for (std::size_t member = 0; member < member_segments_.size(); ++member) {
      end += member_segments_[member];
      if (segment < end) return static_cast<std::uint16_t>(member);
    }
    return std::nullopt;
  }

  const std::vector<std::uint32_t>& member_segments() const noexcept { return member_segments_; }
  /// There is another member than the home, which is the first.
  bool has_others() const noexcept { return member_segments_.size() > 1; }
  /// The numbers of a member's segments, from the first up to and without the second.
  std::pair<std::uint32_t, std::uint32_t> segments_of(std::uint16_t member) const noexcept {
    std::uint32_t begin = 0;
    for (std::uint16_t before = 0; before < member && before < member_segments_.size(); ++before)
      begin += member_segments_[before];
    return {begin, member < member_segments_.size() ? begin + member_segments_[member] : begin};
  }
  /// Of all members.
  std::uint32_t segment_count() const noexcept {
    std::uint32_t count = 0;
    for (const std::uint32_t segments : member_segments_) count += segments;
    return count;
  }

 private:
  std::vector<std::uint32_t> member_segments_;
};

}  // namespace forebay
