// SPDX-License-Identifier: Apache-2.0
#include "reservations/reservation.h"

#include <map>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/uuid.h"
#include "fabric/token.h"
#include "loop/connection.h"
#include "reservations/shares.h"
#include "streams/stream.h"
#include "streams/stream_recovery.h"

namespace forebay::server {
Reservation::Reservation(ReservationHost& host, reservation::ReservationT record)
    : host_(host),
      services_(host.stream_services()),
      record_(std::move(record)),
      space_(services_.loop, services_.device, services_.store, record_,
             storage::member_of_root(record_, services_.root_uuid).value_or(0)),
      old_copies_(*this, services_) {
  space_.guard().work_in([this](std::function<void()> job) { services_.errand_worker.add(std::move(job)); });
  Segments& segments = space_.segments();
  if (!is_home()) {
    for (std::uint16_t member = 0; member < record_.members.size(); ++member)
      if (member != own_member()) segments.set_away(member, true);
    share_ = std::make_unique<MemberShare>(
        MemberShare::Services{services_.loop, services_.device, services_.sync_worker, services_.errand_worker,
                              services_.counter_worker, services_.storage_incarnation, services_.server_run,
                              services_.member_silence_ms * 1'000'000, *services_.mapping_users},
        space_, services_.store.directory(record_.id));
  } else if (record_.members.size() > 1 && services_.members != nullptr) {
    HomeMembers::Events events;
    events.release = [this](const Extent& extent) { space_.release(extent); };
    events.space_changed = [this] { space_.queue().changed(SpaceChange::more); };
    events.went = [this](std::uint16_t member) { member_went(member); };
    events.came = [this](std::uint16_t member) { member_came(member); };
    events.given_up = [this](std::uint16_t member) { member_given_up(member); };
    events.writing = [this] { return writing_streams(); };
    events.is_old = [this](std::uint16_t member, std::uint64_t run) { old_copies_.check(member, run); };
    events.home_is_old = [this] { host_.end_clients(name(), others_->trouble()); };
    others_ = std::make_unique<HomeMembers>(
        HomeMembers::Services{services_.loop, *services_.members, services_.device, services_.counter_worker}, segments,
        access_generation(record_), services_.store.directory(record_.id), std::move(events));
    segments.ask_about_others(others_.get());
  }
}

Reservation::~Reservation() {
  space_.segments().ask_about_others(nullptr);
}

Result<void> Reservation::check_home() const {
  if (is_home()) return {};
  const std::string& root = record_.members.front()->server;
  const PoolServer* const home = services_.members == nullptr ? nullptr : services_.members->pool().find_server(root);
  return fail(ErrorCode::refused,
              fmt::format("the reservation's home is {}; this server has only a share of its segments",
                          home == nullptr ? "the server with root " + root : "server " + home->name),
              "reservation " + name());
}

Result<void> Reservation::check_serves() const {
  if (std::string why = trouble(); !why.empty())
    return fail(ErrorCode::refused, std::move(why), "reservation " + name());
  return {};
}

void Reservation::member_went(std::uint16_t member) {
  for (auto& [stream_name, stream] : streams_) {
    stream->group().member_lost(member);
    stream->followers().serve_all();
  }
}

std::vector<std::string> Reservation::writing_streams() const {
  std::vector<std::string> streams;
  for (const auto& [stream_name, stream] : streams_)
    if (stream->group().active()) streams.push_back(stream->state().uuid);
  return streams;
}

void Reservation::member_given_up(std::uint16_t member) {
  for (auto& [stream_name, stream] : streams_) stream->lose_all_on(member);
}

void Reservation::member_came(std::uint16_t member) {
  // Who writes there is not known after a restart of this server.
  const auto [first, end] = space_.segments().layout().segments_of(member);
  for (std::uint32_t segment = first; segment < end; ++segment)
    if (space_.map().owner(segment) == unknown_owner) (void)space_.segments().nobody_writes(segment);
  for (auto& [stream_name, stream] : streams_) {
    (void)stream->lose_steps({{member, others_->storage_incarnation(member)}});
    stream->flusher().request(false);
    // Readers may wait for it.
    stream->followers().serve_all();
  }
}

AccessRights Reservation::rights_of(const Peer& peer) const {
  if (!peer.remote || peer.remote->identified) {
    const Rights rights = rights_in(record_, peer);
    return {rights, access_generation(record_, peer.uid), rights == Rights::read};
  }
  // Whoever made the token had these rights then, and nobody's have become less since.
  const std::uint64_t generation = access_generation(record_, peer.remote->uid);
  const bool valid = peer.remote->reservation_id == record_.id && peer.remote->access_generation == generation;
  if (!valid) return {};
  const bool writes = (peer.remote->rights & fabric::right_write) != 0;
  const bool reads = (peer.remote->rights & fabric::right_read) != 0;
  const bool owners = peer.remote->uid == record_.owner_uid || peer.remote->uid == 0;
  return {writes ? Rights::write : reads ? Rights::read : Rights::none, generation, !writes && !owners};
}

Result<void> Reservation::admit(const Peer& peer, Rights needed) const {
  const AccessRights access = rights_of(peer);
  if (access.allow(needed)) return {};
  if (!access.allow(Rights::read)) return fail(denial(name(), peer));
  const std::string where = "reservation " + name();
  if (needed == Rights::own)
    return fail(ErrorCode::permission_denied, "only its owner and root may share or destroy a reservation", where);
  return fail(ErrorCode::permission_denied,
              fmt::format("user {} may only read here; its owner can change that: `forebay share {} --user {} --rights "
                          "write`",
                          peer.uid, name(), peer.uid),
              where);
}

void Reservation::set_access(const reservation::ReservationT& record) {
  reservation::ReservationT changed(record);
  record_.shares = std::move(changed.shares);
  record_.access_generation = changed.access_generation;
  record_.files_access_due = changed.files_access_due;
}

void Reservation::set_grant(const reservation::ReservationT& record) {
  record_.lifetime = record.lifetime;
  record_.files_bytes = record.files_bytes;
}

Error Reservation::denial(const std::string& name, const Peer& peer) {
  return {ErrorCode::permission_denied,
          fmt::format("there is no reservation of this name that user {} may use; `forebay ls` lists yours, its owner "
                      "can let you in with `forebay share`",
                      peer.uid),
          "reservation " + name};
}

const std::string* Reservation::unreadable(const std::string& stream) const {
  const auto& unreadable = unreadable_streams();
  auto found = unreadable.find(stream);
  if (found == unreadable.end()) found = unreadable.find(all_streams);
  return found == unreadable.end() ? nullptr : &found->second;
}

Result<void> Reservation::check_readable(const std::string& stream) const {
  const std::string* why = unreadable(stream);
  if (why == nullptr) return {};
  std::string what = "the stream cannot be opened: " + *why + "; repair the disk and restart the server";
  if (unreadable_streams().contains(stream)) what += ", or remove the stream";
  return fail(ErrorCode::corrupt, std::move(what), "stream " + name() + "/" + stream);
}

Stream* Reservation::find_stream(const std::string& stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

Result<Stream*> Reservation::find_or_make_stream(const std::string& stream) {
  if (Stream* found = find_stream(stream)) return found;
  RETURN_IF_ERROR(check_readable(stream));
  if (space_.map().segment_count() == 0) {
    return fail(ErrorCode::no_space,
                "the reservation has no capacity for streams, only for files; create another with --capacity",
                "reservation " + name());
  }
  RETURN_IF_ERROR(host_.check_place_for_stream(record_.owner_uid));
  RETURN_IF_ERROR(space_.journal_room().make_room_for_stream());
  RETURN_IF_ERROR(services_.store.make_stream_directory(record_.id, stream));
  fail_point("server.stream.before_journal");
  auto state = storage::StreamState::fresh(random_uuid(), stream, wall_clock_ns());
  ASSIGN_OR_RETURN(const auto body, state.checkpoint_body());
  ASSIGN_OR_RETURN(auto journal,
                   storage::Journal::create(services_.device, services_.store.stream_directory(record_.id, stream),
                                            {body.data(), body.size()}, space_.journal_room().options()));
  auto made = std::make_unique<Stream>(services_, space_, host_.next_stream_number(), std::move(state),
                                       std::move(journal), JournalWaste{});
  Stream* raw = made.get();
  streams_.emplace(stream, std::move(made));
  host_.has_streams(*this);
  services_.readers.stream_made(raw->path());
  return raw;
}

void Reservation::recover_streams(bool after_boot, const std::set<std::string>& unchecked) {
  space_.journal_room().begin_recovery();
  read_streams(after_boot, unchecked);
  // A stream that was removed took with it who wrote its segments, and that process may live.
  SpaceMap& map = space_.map();
  for (std::uint32_t segment = 0; !after_boot && segment < map.segment_count(); ++segment) {
    if (!map.owner(segment)) map.set_owner(segment, unknown_owner);
  }
  space_.begin_guarding(after_boot);
  if (others_) others_->begin(after_boot);
  space_.journal_room().end_recovery();
  if (!streams_.empty()) host_.has_streams(*this);
}

void Reservation::read_streams(bool after_boot, const std::set<std::string>& unchecked) {
  auto& unreadable = space_.segments().unreadable_streams;
  const bool none_checked = after_boot || unchecked.contains(all_streams);
  auto names = services_.store.stream_names(record_.id);
  if (!names) {
    // Nothing may be written over steps that nobody knows of.
    unreadable.emplace(all_streams, names.error().message());
    unchecked_ = unchecked;
    if (after_boot) unchecked_.insert(all_streams);
    log::error("the streams of {} cannot be listed: {}", name(), names.error().message());
    return;
  }
  const auto to_check = [&](const std::string& stream) { return none_checked || unchecked.contains(stream); };
  const auto not_recovered = [&](const std::string& stream, const Error& error) {
    unreadable.emplace(stream, error.message());
    if (to_check(stream)) unchecked_.insert(stream);
    log::error("stream {}/{} cannot be opened: {}", name(), stream, error.message());
  };
  std::map<std::string, ReadStream> read_streams;
  for (const std::string& stream : *names) {
    auto read = read_stream(services_, space_, stream, to_check(stream));
    if (read) {
      read_streams.emplace(stream, std::move(*read));
      continue;
    }
    if (read.error().code == ErrorCode::not_found) {
      // A crash came between its folder and its journal: nobody was told that it exists.
      if (auto retired = services_.store.retire_stream(record_.id, stream); retired) continue;
    }
    not_recovered(stream, read.error());
  }
  // What was cut from the end of a journal may have dropped a step: those of which all is there come first.
  for (const bool cut : {false, true}) {
    for (auto stream = read_streams.begin(); stream != read_streams.end();) {
      auto& [stream_name, read] = *stream;
      Result<void> taken;
      if (!read.recovery.damaged && (read.recovery.bytes_cut > 0) == cut)
        taken = take_certain_space(services_, space_, read, to_check(stream_name));
      if (!taken) not_recovered(stream_name, taken.error());
      stream = taken ? std::next(stream) : read_streams.erase(stream);
    }
  }
  // Those with a damaged journal last: others may own by now what they tell of.
  for (const bool damaged : {false, true}) {
    for (auto& [stream, read] : read_streams) {
      if (read.recovery.damaged != damaged) continue;
      auto recovered = recover_stream(services_, space_, host_.next_stream_number(), std::move(read), to_check(stream));
      if (!recovered) {
        not_recovered(stream, recovered.error());
        continue;
      }
      if (others_) others_->syncs_recorded((*recovered)->state().member_syncs);
      streams_.emplace(stream, std::move(*recovered));
      // Nothing in its journal can say what of it did not survive: the next start has to look again.
      if (damaged && to_check(stream)) unchecked_.insert(stream);
    }
  }
}

Result<void> Reservation::remove_stream(const std::string& stream) {
  auto& unreadable = space_.segments().unreadable_streams;
  if (const auto all = unreadable.find(all_streams); all != unreadable.end()) {
    return fail(
        ErrorCode::io_error,
        "the reservation's streams cannot be listed: " + all->second + "; repair the disk and restart the server",
        "stream " + name() + "/" + stream);
  }
  // Else a new stream of this name would be taken for it at the next start.
  const auto no_more_unchecked = [&] {
    if (unchecked_.erase(stream) == 0) return;
    if (auto noted = host_.note_boot(); !noted) log::warning("{}", noted.error().message());
  };
  if (unreadable.contains(stream)) {
    // Which steps they hold only its journal tells, and with it gone these would be anybody's space.
    services_.readers.forget_gone_unplaced(host_.earlier_readers_are_gone());
    if (services_.readers.has_unplaced()) {
      return fail(
          ErrorCode::busy,
          "readers from before the server's start may hold steps of this stream, which cannot be read; end them "
          "first",
          "stream " + name() + "/" + stream);
    }
    RETURN_IF_ERROR(services_.store.retire_stream(record_.id, stream));
    unreadable.erase(stream);
    no_more_unchecked();
    host_.purge_quarantine();
    // What lies in them is known again.
    space_.journal_room().shrank();
    space_.queue().changed(SpaceChange::more);
    return {};
  }
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return {};
  if (!found->second->followers().pins().is_empty()) {
    return fail(ErrorCode::busy, "readers hold steps of this stream; end them first",
                "stream " + found->second->path());
  }
  RETURN_IF_ERROR(services_.store.retire_stream(record_.id, stream));
  fail_point("server.stream.retired");
  const std::vector<Extent> held = found->second->extents_of_steps();
  space_.queue().end_waits(*found->second,
                           {ErrorCode::not_found, "the stream was removed", "stream " + found->second->path()});
  found->second->removed();
  streams_.erase(found);
  no_more_unchecked();
  for (const Extent& extent : held) space_.map().release(extent);
  space_.journal_room().shrank();
  space_.queue().changed(SpaceChange::more);
  host_.purge_quarantine();
  return {};
}

ReservationInfo Reservation::info() const {
  ReservationInfo info;
  info.name = name();
  info.id = record_.id;
  info.capacity_bytes = record_.capacity_bytes;
  std::uint64_t closed_bytes = 0;  // of members that are away, or not this server's to tell
  for (std::uint32_t segment = 0; segment < space_.map().segment_count(); ++segment)
    if (space_.segments().is_away(segment)) closed_bytes += space_.map().unheld(segment).total();
  info.used_bytes = space_.map().total_bytes() - closed_bytes - space_.map().free_bytes() -
                    space_.journal_room().lent_bytes() + space_.journal_room().taken_bytes();
  info.files_bytes = record_.files_bytes;
  info.segment_bytes = record_.segment_bytes;
  info.lifetime = static_cast<Lifetime>(record_.lifetime);
  info.owner_uid = record_.owner_uid;
  info.owner_gid = record_.owner_gid;
  info.created_ns = record_.created_ns;
  info.streams = static_cast<std::uint32_t>(streams_.size());
  info.files_path = services_.store.files_directory(record_.id);
  info.shares = shares_of(record_);
  info.access_generation = access_generation(record_);
  info.files_group = record_.files_group;
  info.pool = record_.pool;
  info.account = record_.account;
  for (const auto& member : record_.members)
    info.members.push_back({member->server, member->capacity_bytes, member->segments});
  info.home = is_home();
  info.trouble = trouble();
  return info;
}

ReservationInfo Reservation::owners_info() const {
  ReservationInfo details = info();
  for (auto& text : {text_of_unfinished(*this), text_of_untouched(*this)}) {
    if (!text.empty()) details.files_left.push_back(text);
  }
  return details;
}

}  // namespace forebay::server
