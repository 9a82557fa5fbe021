// SPDX-License-Identifier: Apache-2.0
// How a reservation hands out its space: whose segments are free, what makes room, and who waits for it.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/server.h"
#include "reservations/reservation.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

/// Grants of more have a longer record than their step was checked for.
constexpr std::size_t extents_usual = 4;

/// Why a wait ends that has not begun.
const char* why_at_once(const SpaceWaiter& waiter) {
  if (waiter.when_full == WhenFull::error) return "the stream was opened with WhenFull=error";
  return "nothing that could free space is under way: drop or stage out steps, set a retention, or make a larger "
         "reservation";
}

}  // namespace

bool Reservation::is_living(const Owner& owner) const {
  return std::ranges::any_of(streams_, [&](const auto& entry) { return entry.second->group().owns(owner); });
}

bool Reservation::adopt_segments(const Owner& owner, std::uint64_t bytes) {
  // No more than is needed: what one writer takes, no other living one can have.
  std::uint64_t adopted_bytes = 0;
  for (std::uint32_t segment = 0; segment < space_.segment_count() && adopted_bytes < std::max(bytes, space_unit_bytes);
       ++segment) {
    const auto before = space_.owner(segment);
    if (!before || before->same_group(owner) || space_.free_bytes_in(segment) == 0) continue;
    if (is_living(*before)) continue;
    // An old incarnation's process, or a child that it forked, may still be writing.
    auto unwritten = storage::nobody_writes(server_.store().segment_path(record_.id, segment));
    if (!unwritten) {
      log::warning("cannot tell whether segment {} of {} is still written: {}", segment, name(),
                   unwritten.error().message());
      continue;
    }
    if (!*unwritten) continue;
    if (space_.is_whole_free(segment)) {
      space_.set_owner(segment, std::nullopt);
    } else {
      space_.set_owner(segment, owner);
    }
    adopted_bytes += space_.free_bytes_in(segment);
  }
  if (adopted_bytes >= bytes) return true;
  return take_emptied_segments(owner, bytes - adopted_bytes) || adopted_bytes > 0;
}

bool Reservation::take_emptied_segments(const Owner& owner, std::uint64_t bytes) {
  std::uint64_t taken_bytes = 0;
  if (space_.free_bytes() < bytes) return false;
  for (auto& [name, other] : streams_) {
    if (!other->group().is_complete()) continue;
    journal::SegmentsLeftT left;
    for (std::uint32_t segment = 0; taken_bytes < bytes && segment < space_.segment_count(); ++segment) {
      const auto before = space_.owner(segment);
      if (!before || before->same_group(owner) || !other->group().owns(*before)) continue;
      if (!space_.is_whole_free(segment) || !other->state().owners.contains(segment)) continue;
      left.segments.push_back(segment);
      taken_bytes += record_.segment_bytes;
    }
    if (left.segments.empty()) continue;
    // In the journal before another stream has them there: after a crash the group that comes back must not think so
    // too.
    const std::vector<std::uint32_t> segments = left.segments;
    if (!other->record(storage::RecordType::segments_left, std::move(left))) continue;
    for (const std::uint32_t segment : segments) space_.set_owner(segment, std::nullopt);
  }
  return taken_bytes > 0;
}

std::optional<std::vector<Extent>> Reservation::take_free(Stream& stream, const Owner& owner, std::uint64_t bytes) {
  if (!unreadable_.empty() || space_.free_bytes() < bytes) return std::nullopt;
  // Before space is taken: a step that could not be committed would be written for nothing.
  if (!make_room_for_step(stream)) return std::nullopt;
  std::vector<std::uint32_t> new_segments;
  auto extents = space_.allocate(owner, bytes, new_segments);
  if (!extents) return std::nullopt;
  // Where space is in many pieces their record is longer. What cannot be made is taken from what is kept for commits.
  if (extents->size() > extents_usual) (void)make_room_for_step(stream, extents->size());
  // Segments that came over from an older incarnation count as new too: a segment's last owner in the journal holds.
  journal::SegmentsOwnedT owned;
  owned.incarnation = owner.incarnation;
  owned.rank = owner.rank;
  for (const Extent& extent : *extents) {
    const auto recorded = stream.state().owners.find(extent.segment);
    const bool known = recorded != stream.state().owners.end() && recorded->second.incarnation == owner.incarnation;
    if (!known && std::ranges::find(owned.segments, extent.segment) == owned.segments.end())
      owned.segments.push_back(extent.segment);
  }
  if (!owned.segments.empty()) {
    if (auto recorded = stream.record(storage::RecordType::segments_owned, std::move(owned)); !recorded) {
      for (const Extent& extent : *extents) space_.release(extent);
      for (const std::uint32_t segment : new_segments) space_.set_owner(segment, std::nullopt);
      return std::nullopt;
    }
  }
  return extents;
}

std::optional<std::vector<Extent>> Reservation::allocate(Stream& stream, const Owner& owner, std::uint64_t bytes,
                                                         WhenFull when_full) {
  if (!unreadable_.empty()) return std::nullopt;
  // What becomes free may lie in segments of an older group, which then are to be adopted: else all that can go would
  // go.
  const auto take = [&] {
    auto extents = take_free(stream, owner, bytes);
    // Whether anybody writes there is asked of the kernel: not in vain after each step that goes.
    if (!extents && space_.free_bytes() >= bytes && has_room_for_step(stream) && adopt_segments(owner, bytes))
      extents = take_free(stream, owner, bytes);
    return extents;
  };
  if (auto extents = take()) return extents;
  for (auto& [name, other] : streams_) other->apply_retention();
  if (auto extents = take()) return extents;
  if (space_.free_bytes() < bytes && regain_segments()) {
    if (auto extents = take()) return extents;
  }
  // What was dropped already and comes free with the next sync counts: else all that can go would go at once.
  while (when_full == WhenFull::drop_oldest && stream.unsynced_bytes() < bytes && drops_make_room(stream, bytes) &&
         stream.drop_oldest()) {
    if (auto extents = take()) return extents;
  }
  // Dropped durable steps come free with the next sync of the journal.
  for (auto& [name, other] : streams_) {
    if (other->waits_for_journal_sync()) other->flusher().request(true);
  }
  return std::nullopt;
}

std::vector<Extent> Reservation::allocate_ahead(Stream& stream, const Owner& owner, std::uint64_t bytes) {
  const std::uint64_t kept_free = space_.total_bytes() / 4;
  const bool plenty = space_.free_bytes() >= kept_free && bytes <= space_.free_bytes() - kept_free;
  if (bytes == 0 || !waiters_.empty() || !plenty || !has_plenty_of_journal_room(stream)) return {};
  auto extents = take_free(stream, owner, bytes);
  return extents ? std::move(*extents) : std::vector<Extent>();
}

tl::unexpected<Error> Reservation::full_error(const SpaceWaiter& waiter, const std::string& why) const {
  const char* obstacle = "";
  if (waits_for_record(waiter)) {
    obstacle = " but no segment that could make room for the journals";
  } else if (space_.free_bytes() >= waiter.bytes) {
    obstacle = " but in segments that other writers fill";
  }
  return fail(ErrorCode::no_space,
              fmt::format("reservation {} is full: {} bytes asked for, {} free of {}{}; {}. {}", name(), waiter.bytes,
                          space_.free_bytes(), space_.total_bytes(), obstacle, why, space_holders()),
              "stream " + waiter.stream->path());
}

bool Reservation::is_next(std::uint64_t order) const {
  return std::ranges::all_of(waiters_, [&](const SpaceWaiter& waiter) {
    return order <= waiter.order || (!serving_posted_ && waits_for_record(waiter));
  });
}

bool Reservation::waits_for_record(const SpaceWaiter& waiter) const {
  return space_.free_bytes() >= waiter.bytes && !has_room_for_step(*waiter.stream);
}

bool Reservation::can_wait_end(const SpaceWaiter& waiter) const {
  if (waiter.bytes > space_.total_bytes()) return false;
  if (waiter.when_full == WhenFull::error)
    return std::ranges::any_of(streams_, [](const auto& entry) { return entry.second->frees_with_sync(); });
  if (waiter.when_full == WhenFull::drop_oldest && waiter.stream->drops_when_let_go() &&
      drops_make_room(*waiter.stream, waiter.bytes))
    return true;
  std::uint64_t coming_bytes = space_.free_bytes();
  bool others_write = false;
  for (const auto& [name, other] : streams_) {
    // Ranks that come back after a restart say what they hold; until then nobody gets what is free beside it.
    if (other->frees_with_sync() || other->may_free_space() || other->group().rejoining()) return true;
    const bool waits = other.get() == waiter.stream || std::ranges::any_of(waiters_, [&](const SpaceWaiter& queued) {
                         return queued.stream == other.get();
                       });
    const std::uint64_t granted_bytes = other->group().granted_bytes();
    if (waits || granted_bytes == 0) continue;
    // It may end and give back what it holds, or commit, which makes older steps go.
    others_write = true;
    coming_bytes += granted_bytes;
    if (other->group().may_commit() && !other->state().retention.keeps_all()) coming_bytes += other->kept_bytes();
  }
  return others_write && coming_bytes >= waiter.bytes;
}

void Reservation::wait_for_space(SpaceWaiter waiter, std::int64_t timeout_ms) {
  if (!unreadable_.empty()) {
    const auto& [stream, why] = *unreadable_.begin();
    waiter.answer(
        fail(ErrorCode::corrupt,
             fmt::format("nothing can be written in this reservation: stream {} cannot be opened, so which space it "
                         "holds is not known ({}); mend the disk and restart the server, or remove that stream",
                         stream, why),
             "stream " + waiter.stream->path()));
    return;
  }
  // What came free just now is looked at soon, with all who wait.
  waiter.judged = !serving_posted_;
  if (waiter.judged && !can_wait_end(waiter)) {
    waiter.answer(full_error(waiter, why_at_once(waiter)));
    return;
  }
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const auto place =
      std::ranges::find_if(waiters_, [&](const SpaceWaiter& other) { return other.order > waiter.order; });
  const auto inserted = waiters_.insert(place, std::move(waiter));
  if (!deadline.is_never()) {
    inserted->timer = server_.loop().at(deadline.at_ns(), [this, inserted] {
      SpaceWaiter expired = std::move(*inserted);
      waiters_.erase(inserted);
      expired.answer(full_error(expired, "the deadline for waiting passed"));
      space_changed();
    });
  }
  // Another waiter's step and this one's may each hold what the other needs.
  space_changed();
}

void Reservation::end_waits(const Stream& stream, const Error& error) {
  std::vector<SpaceWaiter> ended;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->stream == &stream) {
      if (waiter->timer) server_.loop().cancel(*waiter->timer);
      ended.push_back(std::move(*waiter));
      waiter = waiters_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  for (const SpaceWaiter& waiter : ended) waiter.answer(fail(error));
  if (!ended.empty()) space_changed();
}

void Reservation::release(const Extent& extent) {
  space_.release(extent);
  if (!waiters_.empty()) space_changed();
}

void Reservation::space_changed() {
  if (serving_posted_ || waiters_.empty()) return;
  serving_posted_ = true;
  server_.loop().post([&server = server_, id = record_.id, name = name()] {
    // The reservation may have been destroyed in the meantime.
    const auto found = server.reservations().find(name);
    if (found == server.reservations().end() || found->second->record().id != id) return;
    found->second->serving_posted_ = false;
    found->second->serve_waiters();
  });
}

void Reservation::serve_waiters() {
  // Others may have room in their journals.
  std::set<const Stream*> without_room;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (without_room.contains(waiter->stream)) {
      ++waiter;
      continue;
    }
    auto extents = allocate(*waiter->stream, waiter->owner, waiter->bytes, waiter->when_full);
    if (extents) {
      SpaceWaiter served = std::move(*waiter);
      waiters_.erase(waiter);
      if (served.timer) server_.loop().cancel(*served.timer);
      served.answer(std::move(*extents));
      // An answer may end the waits of others.
      waiter = waiters_.begin();
    } else if (waits_for_record(*waiter)) {
      without_room.insert(waiter->stream);
    } else {
      break;
    }
  }
  const auto [chosen, why] = next_to_give_up();
  if (chosen == waiters_.end()) {
    for (SpaceWaiter& waiter : waiters_) waiter.judged = true;
    return;
  }
  SpaceWaiter given_up = std::move(*chosen);
  waiters_.erase(chosen);
  if (given_up.timer) server_.loop().cancel(*given_up.timer);
  given_up.answer(full_error(given_up, why));
  space_changed();
}

std::pair<std::list<SpaceWaiter>::iterator, const char*> Reservation::next_to_give_up() {
  constexpr auto hopeless = "nothing that could free space is under way any more";
  // Wherever they are in the queue: those that have just come, and those that wait for a sync alone.
  const auto refused = std::ranges::find_if(waiters_, [this](const SpaceWaiter& waiter) {
    return (!waiter.judged || waiter.when_full == WhenFull::error) && !can_wait_end(waiter);
  });
  if (refused != waiters_.end()) return {refused, why_at_once(*refused)};
  if (!waiters_.empty() && waits_for_record(waiters_.front()) && !can_wait_end(waiters_.front()))
    return {waiters_.begin(), hopeless};
  // The first that waits for space may wait for what only later steps hold, and those wait too: the last to come gives
  // way.
  const auto for_space = [this](const SpaceWaiter& waiter) { return !waits_for_record(waiter); };
  const auto first = std::ranges::find_if(waiters_, for_space);
  if (first == waiters_.end() || can_wait_end(*first)) return {waiters_.end(), ""};
  const auto last = std::prev(std::find_if(waiters_.rbegin(), waiters_.rend(), for_space).base());
  return {last, last == first ? hopeless : "an earlier step waits for the same space"};
}

void Reservation::less_is_coming() {
  if (!waiters_.empty() && next_to_give_up().first != waiters_.end()) space_changed();
}

void Reservation::claim(const Stream& claimant, const Extent& extent) {
  for (const auto& [stream_name, stream] : streams_) {
    // Its own step that has committed may be a part in flight to its writer.
    if (stream.get() != &claimant) stream->give_way(extent);
  }
}

std::string Reservation::space_holders() const {
  std::string text = "Held by";
  for (const auto& [stream_name, stream] : streams_) {
    const auto& state = stream->state();
    if (state.steps.empty() && stream->group().granted_bytes() == 0) continue;
    const auto precious = std::ranges::count_if(state.steps, [](const auto& entry) { return entry.second.precious(); });
    text += fmt::format(" [{}: {} steps, {} bytes, retention {}", stream_name, state.steps.size(), stream->kept_bytes(),
                        to_string(state.retention));
    if (precious > 0) text += fmt::format(", {} precious and not staged out", precious);
    const auto pinned = std::ranges::count_if(state.steps, [&](const auto& entry) {
      return stream->followers().pinned({entry.second.committed.epoch, entry.first});
    });
    if (pinned > 0) text += fmt::format(", {} that readers or a writer's arrays hold", pinned);
    if (stream->group().granted_bytes() > 0)
      text += fmt::format(", {} bytes of open steps", stream->group().granted_bytes());
    for (const ConsumerInfo& consumer : stream->followers().consumers()) {
      if (consumer.lag_steps > 0)
        text += fmt::format(", consumer {} {} steps behind", consumer.name, consumer.lag_steps);
    }
    text += "]";
  }
  if (lends_segments() || !has_journal_room(0, storage::RecordType::segments_owned))
    text += fmt::format(" [{} bytes by journals, which have {} kept for them: fewer and larger steps take less]",
                        journal_bytes(), record_.journal_reserve_bytes);
  if (!failed_segments_.empty()) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t segment : failed_segments_) bytes += space_.unheld(segment).total();
    text += fmt::format(" [{} bytes in segments whose sync failed: out of use until the server is restarted]", bytes);
  }
  return text;
}

}  // namespace forebay::server
