// SPDX-License-Identifier: Apache-2.0
#include "reservations/shares.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/fail_point.h"
#include "base/return_error.h"
#include "loop/connection.h"
#include "reservations/reservation.h"
#include "storage/files_access.h"
#include "storage/reservation_check.h"
#include "storage/reservation_store.h"

namespace forebay::server {
namespace {

Share share_of(const reservation::ShareT& share) {
  return {static_cast<Share::Kind>(share.kind), share.id, static_cast<Rights>(share.rights)};
}

std::string where_of(const reservation::ReservationT& record) {
  return "reservation " + record.name;
}

/// What members of the group may do, for as far as this group decides.
Rights rights_of_group(const reservation::ReservationT& record, std::uint32_t group) {
  for (const auto& share : record.shares) {
    const Share known = share_of(*share);
    if (known.kind == Share::Kind::group && known.id == group) return known.rights;
  }
  return group == record.owner_gid ? Rights::write : Rights::none;
}

/// What a user may do who had no share before: what their groups allow is not known here, so the most that any does.
Rights most_of_groups(const reservation::ReservationT& record) {
  Rights most = rights_of_group(record, record.owner_gid);
  for (const auto& share : record.shares) {
    const Share known = share_of(*share);
    if (known.kind == Share::Kind::group) most = std::max(most, known.rights);
  }
  return most;
}

bool takes_away(const reservation::ReservationT& record, const Share& share) {
  if (share.kind == Share::Kind::group) return share.rights < rights_of_group(record, share.id);
  const auto before = std::ranges::find_if(record.shares, [&](const auto& known) {
    return share_of(*known).kind == Share::Kind::user && known->id == share.id;
  });
  return share.rights < (before == record.shares.end() ? most_of_groups(record) : share_of(**before).rights);
}

/// Without this share, nobody would have more rights than with it. A user's always may, now or once a group of theirs
/// has a share.
bool keeps_nobody_out(const reservation::ReservationT& record, const Share& share) {
  return share.rights == Rights::none && share.kind == Share::Kind::group && share.id != record.owner_gid;
}

/// Makes room for another share. False if all of them count.
bool drop_idle_share(reservation::ReservationT& record) {
  // What it took away may still be in lists in files/.
  if (record.files_access_due) return false;
  const auto idle = std::ranges::find_if(record.shares,
                                         [&](const auto& known) { return keeps_nobody_out(record, share_of(*known)); });
  if (idle == record.shares.end()) return false;
  // What was void stays void: tokens of before the share was taken away.
  record.access_generation += (*idle)->access_generation;
  record.shares.erase(idle);
  return true;
}

/// The first of them, in a line that people can read.
std::string some_of(const std::vector<std::string>& places, std::uint64_t count) {
  constexpr std::size_t bytes_max = 150;
  std::string text;
  std::size_t named = 0;
  for (const std::string& place : places) {
    if (named > 0 && text.size() + place.size() > bytes_max) break;
    text += (named++ > 0 ? ", " : "") + place;
  }
  if (count > named) text += fmt::format(" and {} more", count - named);
  return text;
}

}  // namespace

std::string text_of_unfinished(const Reservation& reservation) {
  const storage::FilesAccessReport& report = reservation.files_report();
  if (report.unfinished == 0) return {};
  return fmt::format("not shared as it should be: {}; remove what is in the way and share again",
                     some_of(report.unfinished_places, report.unfinished));
}

std::string text_of_untouched(const Reservation& reservation) {
  const storage::FilesAccessReport& report = reservation.files_report();
  if (report.untouched == 0) return {};
  return fmt::format(
      "not made in the reservation, so shares give no right to it: {}; its owner adopts it by `forebay "
      "share {} --adopt PATH`",
      some_of(report.untouched_places, report.untouched), reservation.name());
}

Rights rights_in(const reservation::ReservationT& record, const Peer& peer) {
  if (peer.remote && !peer.remote->identified) return Rights::none;
  if (peer.remote && !peer.remote->reservation_id.empty() && peer.remote->reservation_id != record.id)
    return Rights::none;
  if (peer.administrator || peer.uid == record.owner_uid) return Rights::own;
  Rights most = peer.in_group(record.owner_gid) ? rights_of_group(record, record.owner_gid) : Rights::none;
  for (const auto& share : record.shares) {
    const Share known = share_of(*share);
    if (known.kind == Share::Kind::user && known.id == peer.uid) return known.rights;
    if (known.kind == Share::Kind::group && peer.in_group(known.id)) most = std::max(most, known.rights);
  }
  return most;
}

std::vector<Share> shares_of(const reservation::ReservationT& record) {
  std::vector<Share> shares;
  for (const auto& share : record.shares) shares.push_back(share_of(*share));
  return shares;
}

std::uint64_t access_generation(const reservation::ReservationT& record, uid_t uid) noexcept {
  for (const auto& share : record.shares) {
    if (share_of(*share).kind == Share::Kind::user && share->id == uid)
      return record.access_generation + share->access_generation;
  }
  return record.access_generation;
}

std::uint64_t access_generation(const reservation::ReservationT& record) noexcept {
  std::uint64_t generation = record.access_generation;
  for (const auto& share : record.shares) generation += share->access_generation;
  return generation;
}

Result<void> check_share(const reservation::ReservationT& record, const Share& share) {
  const bool known_kind = share.kind == Share::Kind::user || share.kind == Share::Kind::group;
  const bool known_rights =
      share.rights == Rights::none || share.rights == Rights::read || share.rights == Rights::write;
  if (!known_kind || !known_rights)
    return fail(ErrorCode::invalid_argument, "a share gives a user or a group the rights read, write or none",
                where_of(record));
  if (share.kind == Share::Kind::user && share.id == record.owner_uid) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("user {} owns the reservation and may do everything", share.id), where_of(record));
  }
  return {};
}

Result<reservation::ReservationT> with_share(const reservation::ReservationT& record, const Share& share) {
  reservation::ReservationT changed(record);
  const bool less = takes_away(record, share);
  // Which members of the group have tokens is not known here.
  if (less && share.kind == Share::Kind::group) ++changed.access_generation;
  const auto key = [](const auto& known) { return std::pair(known->kind, known->id); };
  auto entry = std::make_unique<reservation::ShareT>();
  entry->kind = static_cast<std::uint8_t>(share.kind);
  entry->id = share.id;
  entry->rights = static_cast<std::uint8_t>(share.rights);
  auto place = std::ranges::lower_bound(changed.shares, key(entry), {}, key);
  const bool known = place != changed.shares.end() && key(*place) == key(entry);
  entry->access_generation = known ? (*place)->access_generation : 0;
  if (less && share.kind == Share::Kind::user) ++entry->access_generation;
  if (known) {
    *place = std::move(entry);
  } else {
    if (changed.shares.size() == storage::shares_max && !drop_idle_share(changed)) {
      return fail(ErrorCode::no_space,
                  fmt::format("the reservation has {} shares, which is the most; share it with a group instead",
                              storage::shares_max),
                  where_of(record));
    }
    place = std::ranges::lower_bound(changed.shares, key(entry), {}, key);
    changed.shares.insert(place, std::move(entry));
  }
  return changed;
}

Result<void> record_shares(storage::ReservationStore& store, reservation::ReservationT& record, bool& recorded) {
  RETURN_IF_ERROR(storage::check_files_access(record, store.files_directory(record.id)));
  record.files_access_due = true;
  RETURN_IF_ERROR(store.replace_record(record));
  recorded = true;
  fail_point("server.share.recorded");
  return store.let_others_pass(record);
}

}  // namespace forebay::server
