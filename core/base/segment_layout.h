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

 private:
  std::vector<std::uint32_t> member_segments_;
};

}  // namespace forebay
