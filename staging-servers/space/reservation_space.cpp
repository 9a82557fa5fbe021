// SPDX-License-Identifier: Apache-2.0
#include "space/reservation_space.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/invariant.h"
#include "base/side_by_side.h"
#include "base/size_text.h"

namespace forebay::server {
namespace {

/// Grants of more have a longer record than their step was checked for.
constexpr std::size_t extents_usual = 4;
/// Before commits, a segment is looked at no more often.
constexpr std::int64_t look_pause_ns = ns_per_ms;
/// A message names the largest.
constexpr std::size_t holders_shown_max = 3;

}  // namespace

ReservationSpace::ReservationSpace(EventLoop& loop, Device& device, storage::ReservationStore& store,
                                   const reservation::ReservationT& record, std::uint16_t own_member)
    : segments_(device, store, record, own_member),
      guard_(loop, segments_),
      queue_(loop, *this),
      journal_room_(segments_, store, queue_) {}

std::optional<std::vector<Extent>> ReservationSpace::take_from_members(const Owner& owner, std::uint64_t bytes,
                                                                       const SpacePlace& place,
                                                                       std::vector<std::uint32_t>& new_segments) {
  const SegmentLayout& layout = segments_.layout();
  if (!layout.has_others()) return map().allocate(owner, bytes, new_segments);
  const auto span_of = [&](std::uint16_t member) {
    const auto [begin, end] = layout.segments_of(member);
    return SegmentSpan{begin, end};
  };
  if (place.at_home) return map().allocate(owner, bytes, new_segments, span_of(0));
  const std::uint64_t wanted = round_up(std::max<std::uint64_t>(bytes, 1), space_unit_bytes);
  const std::uint64_t stripe = std::max(segments_.record().stripe_bytes, space_unit_bytes);
  // A block up to the stripe's size lies on one member, a larger one on all of them side by side.
  const bool spreads = !place.near && wanted > stripe;
  const auto members = static_cast<std::uint16_t>(layout.member_segments().size());
  // The writer's own first, else one after another from the rank's on, the home last.
  std::vector<std::uint16_t> order;
  for (std::uint16_t i = 0; i + 1 < members; ++i)
    order.push_back(static_cast<std::uint16_t>(1 + (owner.rank + i) % (members - 1U)));
  order.push_back(0);
  if (place.near) {
    std::erase(order, *place.near);
    order.insert(order.begin(), *place.near);
  }
  std::erase_if(order, [&](std::uint16_t member) { return place.avoid.contains(member); });
  const auto free_of = [&](std::uint16_t member) { return map().free_bytes_for(owner, span_of(member)); };
  std::uint64_t at_home = std::ranges::find(order, 0) != order.end() ? free_of(0) : 0;
  // It has to have room for metadata: of that it gives only what the others cannot.
  const bool gives_early = spreads || place.near == 0;
  const std::uint64_t kept_at_home =
      gives_early ? layout.member_segments().front() * segments_.record().segment_bytes / 8 : at_home;
  std::vector<std::pair<std::uint16_t, std::uint64_t>> free;
  for (const std::uint16_t member : order) {
    if (member != 0) free.emplace_back(member, free_of(member));
    if (member == 0 && at_home > kept_at_home) free.emplace_back(member, at_home - kept_at_home);
  }
  auto shares = shares_side_by_side(wanted, free, spreads ? stripe : wanted);
  std::uint64_t missing = wanted;
  for (const auto& [member, share] : shares) {
    missing -= share;
    if (member == 0) at_home -= share;
  }
  if (missing > at_home) return std::nullopt;
  if (missing > 0) shares.emplace_back(0, missing);
  std::vector<Extent> extents;
  for (const auto& [member, share] : shares) {
    const auto there = map().allocate(owner, share, new_segments, span_of(member));
    invariant(there.has_value(), "space that an owner may have cannot be allocated");
    extents.insert(extents.end(), there->begin(), there->end());
  }
  return extents;
}

std::optional<std::vector<Extent>> ReservationSpace::take_free(SpaceUser& user, const Owner& owner, std::uint64_t bytes,
                                                               const SpacePlace& place) {
  if (!segments_.all_known() || map().free_bytes() < bytes) return std::nullopt;
  JournalInRoom& journal = user.journal_in_room();
  // Before space is taken: a step that could not be committed would be written for nothing.
  if (!journal_room_.make_room_for_step(journal)) return std::nullopt;
  std::vector<std::uint32_t> new_segments;
  auto extents = take_from_members(owner, bytes, place, new_segments);
  if (!extents) return std::nullopt;
  // Where space is in many pieces their record is longer. What cannot be made is taken from what is kept for commits.
  if (extents->size() > extents_usual) (void)journal_room_.make_room_for_step(journal, extents->size());
  // Segments that came over from an older incarnation count as new too: a segment's last owner in the journal holds.
  journal::SegmentsOwnedT owned;
  owned.incarnation = owner.incarnation;
  owned.rank = owner.rank;
  const auto& owners = user.state().owners;
  for (const Extent& extent : *extents) {
    const auto recorded = owners.find(extent.segment);
    const bool known = recorded != owners.end() && recorded->second.incarnation == owner.incarnation;
    if (!known && std::ranges::find(owned.segments, extent.segment) == owned.segments.end())
      owned.segments.push_back(extent.segment);
  }
  if (!owned.segments.empty()) {
    if (auto noted = user.note_owned(std::move(owned)); !noted) {
      for (const Extent& extent : *extents) map().release(extent);
      for (const std::uint32_t segment : new_segments) map().set_owner(segment, std::nullopt);
      return std::nullopt;
    }
  }
  queue_.changed(SpaceChange::less);
  return extents;
}

std::optional<std::vector<Extent>> ReservationSpace::allocate(SpaceUser& user, const Owner& owner, std::uint64_t bytes,
                                                              WhenFull when_full, const SpacePlace& place) {
  if (!segments_.all_known()) return std::nullopt;
  // What becomes free may lie in segments of an older group, which then are to be adopted: else all that can go would
  // go.
  const auto take = [&] {
    auto extents = take_free(user, owner, bytes, place);
    // Whether anybody writes there is asked of the kernel: not in vain after each step that goes.
    if (!extents && map().free_bytes() >= bytes && journal_room_.has_room_for_step(user.journal_in_room()) &&
        segments_.adopt(owner, bytes, place.at_home))
      extents = take_free(user, owner, bytes, place);
    return extents;
  };
  if (auto extents = take()) return extents;
  for (SpaceUser* other : segments_.users()) other->apply_retention();
  if (auto extents = take()) return extents;
  if (map().free_bytes() < bytes && journal_room_.regain_segments()) {
    if (auto extents = take()) return extents;
  }
  // What was dropped already and comes free with the next sync counts: else all that can go would go at once.
  while (when_full == WhenFull::drop_oldest && user.unsynced_bytes() < bytes && drops_make_room(user, bytes) &&
         user.drop_oldest()) {
    if (auto extents = take()) return extents;
  }
  // Dropped durable steps come free with the next sync of the journal.
  for (SpaceUser* other : segments_.users()) other->hurry_releases();
  return std::nullopt;
}

std::vector<Extent> ReservationSpace::allocate_ahead(SpaceUser& user, const Owner& owner, std::uint64_t bytes,
                                                     const SpacePlace& place) {
  const std::uint64_t kept_free = map().total_bytes() / 4;
  const bool plenty = map().free_bytes() >= kept_free && bytes <= map().free_bytes() - kept_free;
  if (bytes == 0 || !queue_.is_empty() || !plenty || !journal_room_.has_plenty(user.journal_in_room())) return {};
  auto extents = take_free(user, owner, bytes, place);
  return extents ? std::move(*extents) : std::vector<Extent>();
}

void ReservationSpace::release(const Extent& extent) {
  map().release(extent);
  queue_.changed(SpaceChange::more);
}

void ReservationSpace::segment_failed(std::uint32_t segment, const Error& error) {
  if (!segments_.set_failed(segment)) return;
  problems.push_back(fmt::format("segment {} could not be synced and is out of use until the server is restarted: {}",
                                 segment, error.message()));
  for (SpaceUser* user : segments_.users()) {
    if (user->writes_unsynced_in(segment))
      user->fail_stream(fmt::format("segment {}, which it shares, could not be synced: {}", segment, error.message()));
  }
  queue_.changed(SpaceChange::more);
}

Result<Descriptor> ReservationSpace::open_to_write(std::uint32_t segment, uid_t user) {
  guard_.note_taken(segment);
  return segments_.open_to_write(segment, user);
}

void ReservationSpace::begin_guarding(bool after_boot) {
  guard_.begin();
  for (std::uint32_t segment = 0; segment < map().segment_count(); ++segment) {
    // Writers on other members' nodes live on.
    if (!after_boot || !segments_.is_own(segment)) segments_.set_holders(segment, {Segments::unknown_user});
  }
}

void ReservationSpace::guard_segments(std::size_t& probes) {
  if (segments_.held().empty() && segments_.damaged().empty()) return;
  const auto is_living = [&](std::uint32_t segment) {
    const auto owner = map().owner(segment);
    return owner && segments_.is_living(*owner);
  };
  // A probe takes away an entry. Those that were not asked this time come first the next time.
  const auto held = segments_.held();
  for (auto entry = held.lower_bound(next_probed_); entry != held.end() && probes > 0; ++entry) {
    next_probed_ = entry->first + 1;
    if (is_living(entry->first) || !segments_.is_own(entry->first)) continue;
    --probes;
    (void)segments_.nobody_writes(entry->first);
  }
  if (probes > 0) next_probed_ = 0;
  for (const auto& [segment, users] : held) {
    if (!segments_.is_own(segment)) continue;
    const auto fault = guard_.look(segment);
    if (!fault) continue;
    const auto owner = map().owner(segment);
    const std::string what = fmt::format("segment {} of its space {}", segment, *fault);
    const std::vector<SpaceUser*> users_now = segments_.users();
    for (SpaceUser* user : users_now) {
      if (owner && user->owns(*owner)) user->segment_misused(what);
    }
  }
  if (guard_.mend()) queue_.changed(SpaceChange::more);
}

std::optional<std::string> ReservationSpace::fault_in(const std::set<std::uint32_t>& segments) {
  for (const std::uint32_t segment : segments) {
    if (segments_.holders(segment).empty() || !segments_.is_own(segment)) continue;
    std::int64_t& looked_ns = looked_before_commit_ns_[segment];
    const std::int64_t now_ns = monotonic_ns();
    if (now_ns - looked_ns < look_pause_ns) continue;
    looked_ns = now_ns;
    if (const auto fault = guard_.look(segment)) return fmt::format("segment {} of its space {}", segment, *fault);
  }
  return std::nullopt;
}

void ReservationSpace::claim(const SpaceUser& claimant, const Extent& extent) {
  for (SpaceUser* user : segments_.users()) {
    // Its own step that has committed may be a part in flight to its writer.
    if (user != &claimant) user->give_way(extent);
  }
}

bool ReservationSpace::drops_make_room(const SpaceUser& user, std::uint64_t bytes) const {
  const JournalInRoom& journal = user.journal_in_room();
  return map().free_bytes() < bytes || journal_room_.has_room_for_step(journal) || journal.shrinks_with_drops();
}

std::string ReservationSpace::holders() const {
  std::vector<Holding> holdings;
  for (const SpaceUser* user : segments_.users()) {
    if (Holding holding = user->holding(); !holding.text.empty()) holdings.push_back(std::move(holding));
  }
  std::ranges::sort(holdings, [](const Holding& one, const Holding& other) {
    return one.bytes != other.bytes ? one.bytes > other.bytes : one.text < other.text;
  });
  std::string text = "Held by";
  const std::span<const Holding> shown = std::span(holdings).first(std::min(holdings.size(), holders_shown_max));
  for (const Holding& holding : shown) text += " [" + holding.text + "]";
  if (holdings.size() > holders_shown_max) {
    std::uint64_t rest_bytes = 0;
    for (const Holding& holding : std::span(holdings).subspan(shown.size())) rest_bytes += holding.bytes;
    const std::size_t rest = holdings.size() - holders_shown_max;
    text += fmt::format(" and {} more stream{} with {}", rest, rest == 1 ? "" : "s", size_text(rest_bytes));
  }
  if (journal_room_.lends_segments() || journal_room_.is_full())
    text += fmt::format(" [{} by journals, which have {} kept for them: fewer and larger steps take less]",
                        size_text(journal_room_.taken_bytes()), size_text(journal_room_.reserve_bytes()));
  if (segments_.any_failed())
    text += fmt::format(" [{} in segments whose sync failed: out of use until the server is restarted]",
                        size_text(segments_.failed_bytes()));
  return text;
}

}  // namespace forebay::server
