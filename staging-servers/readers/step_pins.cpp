// SPDX-License-Identifier: Apache-2.0
#include "readers/step_pins.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/invariant.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"
#include "space/reservation_space.h"

namespace forebay::server {
namespace {

/// The server's own user and root may have the whole table.
PinTable::Holder holder_of(ReaderSession& session) {
  const Peer& peer = session.connection().peer();
  PinTable::Holder holder{peer.pid, {}, session.maps()};
  if (!peer.administrator) holder.sharing = peer.uid;
  return holder;
}

}  // namespace

bool StepPins::pin(ReaderSession& session, const StepKey& key, std::uint64_t size_bytes) {
  return add(session, key, size_bytes, false);
}

bool StepPins::add(ReaderSession& session, const StepKey& key, std::uint64_t size_bytes, bool held) {
  Pin& pin = pins_[key];
  const PinLimit limit = session.pin_limit();
  const auto refuse = [&] {
    if (pin.count == 0) pins_.erase(key);
    return false;
  };
  if (!session.pins.contains(key)) {
    if (!held && !is_within(limit, pin, size_bytes)) return refuse();
    if (!registry_.pins().add(session.number, holder_of(session), state_.uuid, key.first, key.second)) return refuse();
    ++pin.count;
    pin.size_bytes = std::max(pin.size_bytes, size_bytes);  // a writer does not say it
    if (limit.unnamed && ++pin.unnamed == 1) space_.unnamed_pinned_bytes += pin.size_bytes;
    if (limit.guest && ++pin.guests[*limit.guest] == 1) space_.guest_pinned_bytes[*limit.guest] += pin.size_bytes;
  }
  ++session.pins[key];
  return true;
}

bool StepPins::is_within(const PinLimit& limit, const Pin& pin, std::uint64_t size_bytes) const {
  if (!limit.unnamed) return true;
  const std::uint64_t most = space_.unnamed_pinned_bytes_max();
  const std::uint64_t held = space_.unnamed_pinned_bytes + (pin.unnamed == 0 ? size_bytes : 0);
  if (held > most && pin.unnamed == 0) return false;
  if (!limit.guest || pin.guests.contains(*limit.guest)) return true;
  // However many guests there are, each leaves as much to others as it has: none can take it all.
  const auto own = space_.guest_pinned_bytes.find(*limit.guest);
  const std::uint64_t own_bytes = (own == space_.guest_pinned_bytes.end() ? 0 : own->second) + size_bytes;
  return held <= most && own_bytes <= most - held;
}

void StepPins::remove(const StepKey& key, const PinLimit& limit) {
  const auto found = pins_.find(key);
  if (found == pins_.end()) return;
  Pin& pin = found->second;
  if (limit.unnamed && --pin.unnamed == 0) space_.unnamed_pinned_bytes -= pin.size_bytes;
  if (limit.guest && --pin.guests[*limit.guest] == 0) {
    pin.guests.erase(*limit.guest);
    const auto own = space_.guest_pinned_bytes.find(*limit.guest);
    own->second -= pin.size_bytes;
    if (own->second == 0) space_.guest_pinned_bytes.erase(own);
  }
  if (--pin.count > 0) return;
  pins_.erase(found);
  stream_.unpinned(key);
}

bool StepPins::let_go(ReaderSession& session, const StepKey& key) {
  const auto held = session.pins.find(key);
  if (held == session.pins.end() || --held->second > 0) return false;
  session.pins.erase(held);
  registry_.pins().remove(session.number, key.first, key.second);
  remove(key, session.pin_limit());
  return true;
}

void StepPins::release(ReaderSession& session, std::span<const StepKey> keys) {
  bool any = false;
  for (const StepKey& key : keys) any = let_go(session, key) || any;
  // Once: to look through the steps of a long stream takes a while.
  if (any) stream_.what_may_go_changed();
}

std::vector<StepKey> StepPins::pinned() const {
  std::vector<StepKey> keys;
  for (const auto& [key, pin] : pins_) keys.push_back(key);
  return keys;
}

Result<void> StepPins::pin_for_writer(ReaderSession* holder, pid_t process, const StepKey& key) {
  if (holder == nullptr || holder->connection().peer().pid != process || holder->consumer.empty())
    return fail(ErrorCode::protocol, "the part names a holder that is not a named reader of this process");
  if (holder->pins.contains(key)) return {};
  if (!pin(*holder, key, 0)) {
    return fail(ErrorCode::no_space,
                "the program holds memory that it allocated in this step, but the server's table of pins is full; let "
                "go of arrays and of steps that were read");
  }
  return {};
}

void StepPins::leave(ReaderSession& session, bool holds_on) {
  for (const auto& [key, count] : session.pins) {
    const bool is_cut = session.connection().is_remote() && !session.maps();
    const std::uint64_t cut_bytes = is_cut ? pins_.at(key).size_bytes : 0;
    const bool has_room = cut_bytes == 0 || space_.cut_pinned_bytes + cut_bytes <= space_.unnamed_pinned_bytes_max();
    if (holds_on && has_room) {
      // It counts as before, also among the unnamed readers' pins.
      absent_[session.number].push_back({key, session.pin_limit(), cut_bytes});
      space_.cut_pinned_bytes += cut_bytes;
      continue;
    }
    registry_.pins().remove(session.number, key.first, key.second);
    remove(key, session.pin_limit());
  }
  session.pins.clear();
}

bool StepPins::outlast_restarts(ReaderSession& session) {
  return std::ranges::all_of(session.pins, [&](const auto& pin) {
    const StepKey& key = pin.first;
    return registry_.pins().add(session.number, holder_of(session), state_.uuid, key.first, key.second);
  });
}

void StepPins::hold_for_absent(std::uint64_t session, const std::vector<StepKey>& keys) {
  for (const StepKey& key : keys) {
    const auto kept = state_.steps.find(key.second);
    const bool exists =
        (kept != state_.steps.end() && kept->second.committed.epoch == key.first) || state_.retired.contains(key);
    if (!exists) {
      // The server died before the step's record, or lost it with the power.
      registry_.pins().remove(session, key.first, key.second);
      continue;
    }
    ++pins_[key].count;
    absent_[session].push_back({key, {}, 0});
  }
}

void StepPins::end_absent(std::uint64_t session, const std::map<StepKey, std::uint32_t>& kept) {
  const auto found = absent_.find(session);
  if (found == absent_.end()) return;
  registry_.absent_returned(session);
  for (const auto& [key, limit, cut_bytes] : std::exchange(found->second, {})) {
    space_.cut_pinned_bytes -= cut_bytes;
    if (!kept.contains(key)) registry_.pins().remove(session, key.first, key.second);
    remove(key, limit);
  }
  absent_.erase(session);
  stream_.what_may_go_changed();
}

std::vector<StepKey> StepPins::resume(ReaderSession& session, const std::vector<StepKey>& wanted) {
  std::vector<StepKey> lost;
  std::set<StepKey> held_all_along;
  if (const auto absent = absent_.find(session.number); absent != absent_.end()) {
    for (const AbsentPin& pin : absent->second) held_all_along.insert(pin.key);
  }
  for (const StepKey& key : wanted) {
    const auto kept = state_.steps.find(key.second);
    const storage::StepState* step = nullptr;
    if (kept != state_.steps.end() && kept->second.committed.epoch == key.first) step = &kept->second;
    if (const auto retired = state_.retired.find(key); retired != state_.retired.end()) step = &retired->second;
    // Only what was held for it all the time is sure not to have been written over.
    const bool held = held_all_along.contains(key);
    // Others may have come back before it, and pinned what the limit of unnamed readers allows.
    if (step == nullptr || !held || !add(session, key, step->committed.size_bytes, true)) lost.push_back(key);
  }
  // The lines of what it still holds stay in the table all the time: the server may be killed here as anywhere.
  end_absent(session.number, session.pins);
  return lost;
}

void StepPins::forget(const ReaderSession& session) {
  for (const auto& [key, count] : session.pins) registry_.pins().remove(session.number, key.first, key.second);
}

void StepPins::forget_absent() {
  for (auto& [session, held] : absent_) {
    for (AbsentPin& pin : held) {
      registry_.pins().remove(session, pin.key.first, pin.key.second);
      space_.cut_pinned_bytes -= std::exchange(pin.cut_bytes, 0);
    }
  }
}

std::uint32_t StepPins::count(const StepKey& key) const {
  const auto found = pins_.find(key);
  return found == pins_.end() ? 0 : found->second.count;
}

std::uint64_t StepPins::unnamed_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [key, pin] : pins_) {
    if (pin.unnamed > 0) bytes += pin.size_bytes;
  }
  return bytes;
}

std::uint64_t StepPins::cut_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [session, held] : absent_) {
    for (const AbsentPin& pin : held) bytes += pin.cut_bytes;
  }
  return bytes;
}

std::size_t StepPins::check(const std::map<std::uint64_t, ReaderSession*>& sessions, bool certain) const {
  const auto about = [this](const StepKey& key, const char* what) {
    return fmt::format("stream {}, step {} of epoch {}: {}", state_.name, key.second, key.first, what);
  };
  std::map<StepKey, std::uint32_t> holders;
  std::size_t items = 1 + pins_.size();
  for (const auto& [number, session] : sessions) {
    const bool has_process = session->connection().peer().pid != 0 || session->maps();
    for (const auto& [key, count] : session->pins) {
      ++holders[key];
      invariant(count > 0, [&, &held = key] { return about(held, "is held by nobody of a reader"); });
      invariant(!has_process || registry_.pins().holds(number, key.first, key.second),
                [&, &held = key] { return about(held, "is held, and a restarted server would not know"); });
    }
    items += 1 + session->pins.size();
  }
  for (const auto& [session, held] : absent_) {
    for (const AbsentPin& pin : held) ++holders[pin.key];
    items += held.size();
  }
  for (const auto& [key, pin] : pins_) {
    const auto found = holders.find(key);
    invariant(found != holders.end() && found->second == pin.count,
              [&, &held = key] { return about(held, "has another number of holders than counted"); });
    invariant(pin.unnamed <= pin.count,
              [&, &held = key] { return about(held, "has more holders without a name than holders"); });
    const auto kept = state_.steps.find(key.second);
    const bool exists =
        (kept != state_.steps.end() && kept->second.committed.epoch == key.first) || state_.retired.contains(key);
    // A writer's array in the step at hand.
    const bool is_to_come = key.first == state_.epoch && key.second >= state_.next_step;
    invariant(exists || is_to_come || !certain, [&, &held = key] { return about(held, "is held and does not exist"); });
  }
  invariant(holders.size() == pins_.size(),
            [this] { return fmt::format("stream {}: a held step has no pin", state_.name); });
  return items;
}

}  // namespace forebay::server
