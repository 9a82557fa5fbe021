// SPDX-License-Identifier: Apache-2.0
#include "space/space_queue.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/size_text.h"
#include "space/reservation_space.h"

namespace forebay::server {
namespace {

/// Why a wait ends that has not begun.
const char* why_at_once(const SpaceWaiter& waiter) {
  if (waiter.when_full == WhenFull::error) return "the stream was opened with WhenFull=error";
  return "nothing that could free space is under way: drop or stage out steps, set a retention, or create a larger "
         "reservation";
}

}  // namespace

SpaceQueue::SpaceQueue(EventLoop& loop, ReservationSpace& space) : loop_(loop), space_(space) {}

SpaceQueue::~SpaceQueue() {
  for (SpaceWaiter& waiter : waiters_) {
    if (waiter.timer) loop_.cancel(*waiter.timer);
  }
}

bool SpaceQueue::is_next(std::uint64_t order) const {
  return std::ranges::all_of(waiters_, [&](const SpaceWaiter& waiter) {
    return order <= waiter.order || (!more_came_ && waits_for_record(waiter));
  });
}

bool SpaceQueue::waits_for_record(const SpaceWaiter& waiter) const {
  return space_.map().free_bytes() >= waiter.bytes &&
         !space_.journal_room().has_room_for_step(waiter.user->journal_in_room());
}

bool SpaceQueue::can_end(const SpaceWaiter& waiter) const {
  if (waiter.bytes > space_.map().total_bytes()) return false;
  const auto& users = space_.segments().users();
  const OtherMembers* const others = space_.segments().others();
  if (others != nullptr && others->may_free_space()) return true;
  if (waiter.when_full == WhenFull::error)
    return std::ranges::any_of(users, [](const SpaceUser* user) { return user->frees_with_sync(); });
  if (waiter.when_full == WhenFull::drop_oldest && waiter.user->drops_when_let_go() &&
      space_.drops_make_room(*waiter.user, waiter.bytes))
    return true;
  std::uint64_t coming_bytes = space_.map().free_bytes();
  bool others_write = false;
  for (const SpaceUser* other : users) {
    if (other->frees_with_sync() || other->may_free_space()) return true;
    const bool waits = other == waiter.user ||
                       std::ranges::any_of(waiters_, [&](const SpaceWaiter& queued) { return queued.user == other; });
    const std::uint64_t granted_bytes = other->granted_bytes();
    if (waits || granted_bytes == 0) continue;
    // It may end and give back what it holds, or commit, which makes older steps go.
    others_write = true;
    coming_bytes += granted_bytes + other->bytes_that_commits_free();
  }
  return others_write && coming_bytes >= waiter.bytes;
}

void SpaceQueue::wait(SpaceWaiter waiter, std::int64_t timeout_ms) {
  if (!space_.segments().all_known()) {
    const auto& [stream, why] = *space_.segments().unreadable_streams.begin();
    waiter.answer(
        fail(ErrorCode::corrupt,
             fmt::format("nothing can be written in this reservation: stream {} cannot be opened, so it is not known "
                         "which space it holds ({}); repair the disk and restart the server, or remove that stream",
                         stream, why),
             "stream " + waiter.user->path()));
    return;
  }
  // What came free just now is looked at soon, with all who wait.
  waiter.judged = !more_came_;
  if (waiter.judged && !can_end(waiter)) {
    waiter.answer(full_error(waiter, why_at_once(waiter)));
    return;
  }
  waiter.since_ns = wall_clock_ns();
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const auto place =
      std::ranges::find_if(waiters_, [&](const SpaceWaiter& other) { return other.order > waiter.order; });
  const auto inserted = waiters_.insert(place, std::move(waiter));
  if (!deadline.is_never()) {
    inserted->timer = loop_.at(deadline.at_ns(), [this, inserted] {
      inserted->timer.reset();
      const SpaceWaiter expired = taken(inserted);
      expired.answer(full_error(expired, "the deadline for waiting passed"));
      changed(SpaceChange::more);
    });
  }
  // Another waiter's step and this one's may each hold what the other needs.
  changed(SpaceChange::more);
}

SpaceWaiter SpaceQueue::taken(Waiters::iterator waiter) {
  SpaceWaiter out = std::move(*waiter);
  waiters_.erase(waiter);
  if (out.timer) loop_.cancel(*out.timer);
  return out;
}

std::vector<SpaceQueue::Wait> SpaceQueue::waits_of(const SpaceUser& user) const {
  std::vector<Wait> waits;
  std::string holders;
  for (const SpaceWaiter& waiter : waiters_) {
    if (waiter.user != &user) continue;
    if (holders.empty()) holders = space_.holders();
    const char* const room = waits_for_record(waiter) ? " with room in the journal" : "";
    waits.push_back({waiter.owner.rank, waiter.since_ns,
                     fmt::format("{} of space{}, {} free. {}", size_text(waiter.bytes), room,
                                 size_text(space_.map().free_bytes()), holders)});
  }
  return waits;
}

void SpaceQueue::end_waits(const SpaceUser& user, const Error& error) {
  std::vector<SpaceWaiter> ended;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const auto next = std::next(waiter);
    if (waiter->user == &user) ended.push_back(taken(waiter));
    waiter = next;
  }
  for (const SpaceWaiter& waiter : ended) waiter.answer(fail(error));
  if (!ended.empty()) changed(SpaceChange::more);
}

void SpaceQueue::changed(SpaceChange change) {
  if (waiters_.empty()) return;
  more_came_ = more_came_ || change == SpaceChange::more;
  if (std::exchange(look_posted_, true)) return;
  loop_.post([this, alive = std::weak_ptr<const bool>(alive_)] {
    if (!alive.expired()) look();
  });
}

void SpaceQueue::look() {
  look_posted_ = false;
  // Asking for space may cost calls of the kernel: not where there is none that was not there before.
  if (std::exchange(more_came_, false) || next_to_give_up().first != waiters_.end()) serve();
}

void SpaceQueue::serve() {
  // Others may have room in their journals.
  std::set<const SpaceUser*> without_room;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (without_room.contains(waiter->user)) {
      ++waiter;
      continue;
    }
    auto extents = space_.allocate(*waiter->user, waiter->owner, waiter->bytes, waiter->when_full, waiter->place);
    if (extents) {
      const SpaceWaiter served = taken(waiter);
      served.answer(std::move(*extents));
      // An answer may end the waits of others.
      waiter = waiters_.begin();
    } else if (waits_for_record(*waiter)) {
      without_room.insert(waiter->user);
    } else {
      break;
    }
  }
  const auto [chosen, why] = next_to_give_up();
  if (chosen == waiters_.end()) {
    for (SpaceWaiter& waiter : waiters_) waiter.judged = true;
    return;
  }
  const SpaceWaiter given_up = taken(chosen);
  given_up.answer(full_error(given_up, why));
  changed(SpaceChange::more);
}

std::pair<SpaceQueue::Waiters::iterator, const char*> SpaceQueue::next_to_give_up() {
  constexpr auto hopeless = "nothing that could free space is under way any more";
  // Wherever they are in the queue: those that have just come, and those that wait for a sync alone.
  const auto refused = std::ranges::find_if(waiters_, [this](const SpaceWaiter& waiter) {
    return (!waiter.judged || waiter.when_full == WhenFull::error) && !can_end(waiter);
  });
  if (refused != waiters_.end()) return {refused, why_at_once(*refused)};
  if (!waiters_.empty() && waits_for_record(waiters_.front()) && !can_end(waiters_.front()))
    return {waiters_.begin(), hopeless};
  // The first that waits for space may wait for what only later steps hold, and those wait too: the last to come gives
  // way.
  const auto for_space = [this](const SpaceWaiter& waiter) { return !waits_for_record(waiter); };
  const auto first = std::ranges::find_if(waiters_, for_space);
  if (first == waiters_.end() || can_end(*first)) return {waiters_.end(), ""};
  const auto last = std::prev(std::find_if(waiters_.rbegin(), waiters_.rend(), for_space).base());
  return {last, last == first ? hopeless : "an earlier step waits for the same space"};
}

tl::unexpected<Error> SpaceQueue::full_error(const SpaceWaiter& waiter, const std::string& why) const {
  std::string obstacle;
  if (waits_for_record(waiter)) {
    obstacle = ", but no segment can make room for the journals";
  } else if (space_.map().free_bytes() >= waiter.bytes) {
    obstacle = ", but in segments that other writers fill";
  } else {
    obstacle = space_.segments().free_while_away_text();
  }
  return fail(ErrorCode::no_space,
              fmt::format("reservation {} is full: {} asked for, {} free of {}{}; {}. {}", space_.reservation(),
                          size_text(waiter.bytes), size_text(space_.map().free_bytes()),
                          size_text(space_.map().total_bytes()), obstacle, why, space_.holders()),
              "stream " + waiter.user->path());
}

}  // namespace forebay::server
