// SPDX-License-Identifier: Apache-2.0
// What holds of a reservation: each unit of its space is free or has one holder, and what is counted together is what
// its streams have.
#include <algorithm>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/invariant.h"
#include "reservations/reservation.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

/// A part of the space, and which stream holds it.
struct Held {
  Extent extent;
  const Stream* stream = nullptr;
};

std::string text_of(const Held& held) {
  return fmt::format(
      "{} bytes at {} of segment {}, which {} holds", held.extent.length, held.extent.offset, held.extent.segment,
      held.stream == nullptr ? "no stream until a member has answered" : "stream " + held.stream->path());
}

/// Returns their bytes. Each is used, and nobody else's.
std::uint64_t check_holders(const SpaceMap& map, std::vector<Held>& all) {
  std::ranges::sort(all, {}, [](const Held& held) { return std::tuple(held.extent.segment, held.extent.offset); });
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Extent& extent = all[i].extent;
    invariant(map.is_valid(extent), [&] { return text_of(all[i]) + ", are no units of it"; });
    invariant(!map.unheld(extent.segment).overlaps(extent.offset, extent.length),
              [&] { return text_of(all[i]) + ", are free for others"; });
    bytes += extent.length;
    if (i == 0) continue;
    const Extent& before = all[i - 1].extent;
    invariant(before.segment != extent.segment || before.offset + before.length <= extent.offset,
              [&] { return text_of(all[i - 1]) + ", overlap with " + text_of(all[i]); });
  }
  return bytes;
}

}  // namespace

std::size_t Reservation::check() const {
  const SpaceMap& map = space_.map();
  std::size_t items = map.check();
  std::vector<Held> all;
  std::uint64_t unnamed_bytes = 0;
  std::uint64_t cut_bytes = 0;
  for (const auto& [stream_name, stream] : streams_) {
    items += stream->check();
    for (const Extent& extent : stream->extents_held()) all.push_back({extent, stream.get()});
    unnamed_bytes += stream->followers().pins().unnamed_bytes();
    cut_bytes += stream->followers().pins().cut_bytes();
  }
  invariant(unnamed_bytes == space_.unnamed_pinned_bytes, [&] {
    return fmt::format("reservation {}: readers without a name hold {} bytes, counted are {}", name(), unnamed_bytes,
                       space_.unnamed_pinned_bytes);
  });
  invariant(cut_bytes == space_.cut_pinned_bytes, [&] {
    return fmt::format("reservation {}: {} bytes stay for readers that were cut off, counted are {}", name(), cut_bytes,
                       space_.cut_pinned_bytes);
  });
  if (const OtherMembers* const others = space_.segments().others()) {
    for (const Extent& extent : others->fenced_space()) all.push_back({extent, nullptr});
  }
  std::uint64_t unheld_bytes = 0;
  for (std::uint32_t segment = 0; segment < map.segment_count(); ++segment) {
    unheld_bytes += map.unheld(segment).total();
    const bool has_reason = space_.segments().is_unusable(segment) || space_.journal_room().lends(segment);
    invariant(map.is_closed(segment) == has_reason, [&] {
      return fmt::format("reservation {}: segment {} is {}", name(), segment,
                         has_reason ? "in use, and should not be" : "closed for no reason");
    });
  }
  const std::uint64_t held_bytes = check_holders(map, all);
  // What a stream holds that cannot be read is not known.
  invariant(!unreadable_streams().empty() || held_bytes + unheld_bytes == map.total_bytes(), [&] {
    return fmt::format("reservation {}: {} bytes have holders, {} have none, of {}", name(), held_bytes, unheld_bytes,
                       map.total_bytes());
  });
  return items + all.size();
}

}  // namespace forebay::server
