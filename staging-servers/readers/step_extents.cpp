// SPDX-License-Identifier: Apache-2.0
#include "readers/step_extents.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "base/bounds.h"

namespace forebay::server {
namespace {

/// Some bytes of a segment, which is a member's.
struct Place {
  std::uint32_t segment = 0;
  std::uint16_t member = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  auto operator<=>(const Place&) const = default;
};

/// Nothing if it is empty, or ends nowhere.
template <class Extent>
std::optional<Place> place_of(const Extent& extent) {
  const auto end = checked_add(extent.offset(), extent.length());
  if (!end || extent.length() == 0) return std::nullopt;
  return Place{extent.segment(), extent.member(), extent.offset(), *end};
}

/// Sorts them, and makes one of those that touch or overlap.
void join(std::vector<Place>& places) {
  std::ranges::sort(places);
  std::size_t joined = 0;
  for (const Place& place : places) {
    Place& last = places[joined == 0 ? 0 : joined - 1];
    const bool goes_on =
        joined > 0 && last.segment == place.segment && last.member == place.member && place.begin <= last.end;
    if (goes_on) {
      last.end = std::max(last.end, place.end);
    } else {
      places[joined++] = place;
    }
  }
  places.resize(joined);
}

/// The first of these, which are apart from one another and in order, that ends after `place` begins.
std::vector<Place>::const_iterator first_beyond(const std::vector<Place>& places, const Place& place) {
  return std::ranges::partition_point(places, [&](const Place& other) {
    return std::tie(other.segment, other.member, other.end) <= std::tie(place.segment, place.member, place.begin);
  });
}

}  // namespace

bool lie_in(const journal::StepCommittedT& step, std::span<const wire::Extent> asked) {
  std::vector<Place> wanted;
  for (const wire::Extent& extent : asked) {
    const auto place = place_of(extent);
    if (!place) return false;
    wanted.push_back(*place);
  }
  join(wanted);
  std::vector<Place> there;
  const auto add = [&](const std::vector<journal::Extent>& extents) {
    for (const journal::Extent& extent : extents) {
      const auto place = place_of(extent);
      if (!place) continue;
      const auto next = first_beyond(wanted, *place);
      const bool touched = next != wanted.end() && next->segment == place->segment && next->member == place->member &&
                           next->begin < place->end;
      if (touched) there.push_back(*place);
    }
  };
  for (const auto& part : step.parts) {
    add(part->extents);
    if (part->attributes) add(part->attributes->extents);
  }
  join(there);
  return std::ranges::all_of(wanted, [&](const Place& place) {
    const auto around = first_beyond(there, place);
    return around != there.end() && around->segment == place.segment && around->member == place.member &&
           around->begin <= place.begin && place.end <= around->end;
  });
}

}  // namespace forebay::server
