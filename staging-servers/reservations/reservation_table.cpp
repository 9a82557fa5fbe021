// SPDX-License-Identifier: Apache-2.0
#include "reservations/reservation_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <forebay/address.h>

#include "base/log.h"
#include "base/name_rule.h"
#include "base/return_error.h"
#include "base/uuid.h"
#include "loop/connection.h"
#include "space/other_members.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

constexpr std::size_t purge_entries_a_round = 256;
/// A few milliseconds. After a restart each segment is probed once.
constexpr std::size_t probes_a_round = 1024;

}  // namespace

Result<void> check_reservation_name(const std::string& name) {
  if (is_valid_name(name)) return {};
  return fail(ErrorCode::invalid_argument, describe_bad_name(name), "reservation");
}

Result<Reservation*> ReservationTable::find(const std::string& name, const Peer& peer, Rights needed) {
  ASSIGN_OR_RETURN(Reservation* const found, find_any(name, peer, needed));
  RETURN_IF_ERROR(found->check_home());
  RETURN_IF_ERROR(found->check_serves());
  return found;
}

Result<Reservation*> ReservationTable::find_any(const std::string& name, const Peer& peer, Rights needed) {
  RETURN_IF_ERROR(check_reservation_name(name));
  const auto found = reservations_.find(name);
  const bool exists = found != reservations_.end() && !found->second->retiring();
  if (!exists && !peer.administrator) return fail(Reservation::denial(name, peer));
  if (!exists) {
    return fail(ErrorCode::not_found,
                "no such reservation; `forebay ls` lists them, `forebay create " + name + " --capacity 2GiB` makes it",
                "reservation " + name);
  }
  RETURN_IF_ERROR(found->second->admit(peer, needed));
  return found->second.get();
}

Reservation& ReservationTable::add(reservation::ReservationT record) {
  const std::string name = record.name;
  auto& slot = reservations_[name];
  slot = std::make_unique<Reservation>(host_, std::move(record));
  granted_bytes_ += storage::granted_bytes(slot->record(), slot->own_member());
  return *slot;
}

void ReservationTable::end_work(const std::string& name) {
  const auto found = names_in_work.find(name);
  if (found == names_in_work.end()) return;
  for (auto& task : found->second) host_.stream_services().loop.post(std::move(task));
  names_in_work.erase(found);
}

bool ReservationTable::earlier_readers_are_gone() const {
  return std::ranges::all_of(reservations_, [](const auto& entry) {
    const OtherMembers* const others = entry.second->space().segments().others();
    return others == nullptr || others->earlier_are_gone();
  });
}

void ReservationTable::forget(const std::string& name) {
  if (const auto found = reservations_.find(name); found != reservations_.end()) {
    for (auto& [stream_name, stream] : found->second->streams()) {
      found->second->space().queue().end_waits(
          *stream, {ErrorCode::not_found, "the reservation was destroyed", "reservation " + name});
      stream->removed();
    }
    granted_bytes_ -= storage::granted_bytes(found->second->record(), found->second->own_member());
    with_streams_.erase(found->second.get());
    reservations_.erase(found);
  }
  files_sharing_.forget(name);
  host_.stream_services().readers.reservation_destroyed(name);
  purge_quarantine();
}

void ReservationTable::set_grant(Reservation& reservation, const reservation::ReservationT& record) {
  granted_bytes_ -= storage::granted_bytes(reservation.record(), reservation.own_member());
  reservation.set_grant(record);
  granted_bytes_ += storage::granted_bytes(reservation.record(), reservation.own_member());
}

void ReservationTable::finish_sharing() {
  for (const auto& [name, reservation] : reservations_) {
    if (!reservation->record().files_access_due) continue;
    names_in_work.try_emplace(name);
    files_sharing_.begin(name, [this, name](const Result<void>&) { end_work(name); });
  }
}

void ReservationTable::guard_segments() {
  std::size_t probes = probes_a_round;
  const auto guard = [&](Map::iterator from, Map::iterator end) {
    for (; from != end; ++from) {
      if (probes > 0) guarded_until_ = from->first;
      from->second->space().guard_segments(probes);
    }
  };
  // Those that had no probes the last time come first.
  const auto first = reservations_.upper_bound(guarded_until_);
  guard(first, reservations_.end());
  guard(reservations_.begin(), first);
}

Result<std::uint32_t> ReservationTable::free_files_group(const storage::GroupRange& range) const {
  std::set<std::uint32_t> taken = files_groups_in_work;
  for (const auto& [name, reservation] : reservations_) taken.insert(reservation->record().files_group);
  const std::uint64_t count = std::uint64_t{range.last} - range.first + 1;
  // Drawn, so that what a destroyed reservation has marked elsewhere is not soon another's.
  const std::uint64_t drawn = random_number() % count;
  for (std::uint64_t next = 0; next < count && next <= taken.size(); ++next) {
    const auto group = static_cast<std::uint32_t>(range.first + (drawn + next) % count);
    if (!taken.contains(group)) return group;
  }
  return fail(ErrorCode::no_space,
              fmt::format("all group ids of files_groups ({}-{}) name reservations; configure a larger range",
                          range.first, range.last));
}

ReservationTable::StreamCounts ReservationTable::count_streams(uid_t owner) const {
  StreamCounts counts;
  for (Reservation* const reservation : with_streams_) {
    counts.all += reservation->streams().size();
    if (reservation->record().owner_uid == owner) counts.own += reservation->streams().size();
  }
  return counts;
}

void ReservationTable::space_may_be_free() {
  for (Reservation* const reservation : with_streams_) reservation->space().queue().changed(SpaceChange::more);
}

void ReservationTable::purge_quarantine() {
  if (purging_) {
    purge_again_ = true;
    return;
  }
  purging_ = true;
  purge_round();
}

void ReservationTable::purge_round() {
  errand_worker_.add([this, &services = host_.stream_services()] {
    auto done = services.store.purge_quarantine(purge_entries_a_round);
    services.loop.post([this, done = std::move(done)] {
      // What came in since the round began may not have been seen by it.
      if (std::exchange(purge_again_, false) || (done && !*done)) {
        purge_round();
        return;
      }
      purging_ = false;
      if (!done) log::error("quarantine could not be emptied: {}", done.error().message());
      // On a full device it is only now that there is what removed streams had.
      for (Reservation* const reservation : with_streams_) reservation->space().journal_room().shrank();
      space_may_be_free();
    });
  });
}

}  // namespace forebay::server
