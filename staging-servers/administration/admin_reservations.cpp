// SPDX-License-Identifier: Apache-2.0
// Creating, destroying and listing reservations.
#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "administration/admin_requests.h"
#include "administration/admin_session.h"
#include "administration/administered_server.h"
#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/name_rule.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "base/uuid.h"
#include "protocol/record_conversion.h"
#include "storage/reservation_check.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

bool has_members_of(const reservation::ReservationT& one, const reservation::ReservationT& other) {
  return std::ranges::equal(one.members, other.members, [](const auto& its, const auto& others) {
    return its->server == others->server && its->segments == others->segments;
  });
}

}  // namespace

bool AdminSession::postpone_if_in_work(const std::string& name, const protocol::Message& message, bool destroys) {
  auto& in_work = server_.reservations().names_in_work;
  const auto found = in_work.find(name);
  if (found == in_work.end()) return false;
  constexpr std::size_t waiting_max = 1024;
  if (found->second.size() >= waiting_max) {
    connection_.answer_failure(
        message.request,
        {ErrorCode::busy, fmt::format("{} requests about this reservation wait already; try again later", waiting_max),
         "reservation " + name});
    return true;
  }
  found->second.emplace_back([this, alive = connection_.alive(), name, destroys, type = message.type,
                              request = message.request, body = message.body] {
    // What was asked for before may have taken the name up again.
    if (alive.expired() || postpone_if_in_work(name, {type, request, body, {}}, destroys)) return;
    if (destroys && !server_.reservations().all().contains(name)) {
      // It was admitted when it was asked for.
      connection_.answer_done(request);
    } else {
      handle({type, request, body, {}});
    }
  });
  return true;
}

Result<void> AdminSession::create_reservation(const protocol::Message& message,
                                              const wire::ReservationCreateT& wanted) {
  const std::string where = "reservation " + wanted.name;
  AdministeredServer& server = server_;
  ReservationTable& reservations = server.reservations();
  const Peer& peer = connection_.peer();
  RETURN_IF_ERROR(check_reservation_name(wanted.name));
  if (!peer.administrator)
    return fail(ErrorCode::permission_denied,
                "only the server's own user may create reservations; ask the manager (`forebay create`)", where);
  if (wanted.lifetime < 1 || wanted.lifetime > 2)
    return fail(ErrorCode::invalid_argument, "the lifetime must be job or persistent", where);
  if (wanted.pool.size() > name_bytes_max || wanted.account.size() > name_bytes_max)
    return fail(ErrorCode::invalid_argument, "names of pools and accounts have 64 bytes at most", where);
  const std::string own_root = server.info().uuid;
  if ((!wanted.id.empty() && !is_uuid(wanted.id)) || wanted.members.size() > storage::members_max)
    return fail(ErrorCode::invalid_argument, "a reservation's id is a uuid, and it has 1024 members at most", where);
  std::vector<std::uint64_t> member_bytes;
  for (const auto& member : wanted.members) member_bytes.push_back(member->capacity_bytes);
  ASSIGN_OR_RETURN(auto layout, member_bytes.empty() ? storage::layout_for(wanted.capacity_bytes, wanted.files_bytes)
                                                     : storage::layout_for(member_bytes, wanted.files_bytes));
  if (auto held = server.stream_services().store.check_files_capacity(layout.files_bytes); !held) {
    held.error().where = where;
    return held;
  }
  if (postpone_if_in_work(wanted.name, message, false)) return {};

  reservation::ReservationT record;
  record.id = wanted.id.empty() ? random_uuid() : wanted.id;
  record.name = wanted.name;
  record.capacity_bytes = layout.capacity_bytes;
  record.files_bytes = layout.files_bytes;
  record.segment_bytes = layout.segment_bytes;
  record.journal_reserve_bytes = layout.journal_reserve_bytes;
  record.stripe_bytes = layout.stripe_bytes;
  record.lifetime = wanted.lifetime;
  record.owner_uid = wanted.owner_uid.value_or(peer.uid);
  record.owner_gid = wanted.owner_gid.value_or(peer.gid);
  record.created_ns = wall_clock_ns();
  for (std::size_t number = 0; number < layout.segments.size(); ++number) {
    auto member = std::make_unique<reservation::MemberT>();
    member->server = wanted.members.empty() ? own_root : wanted.members[number]->server;
    member->segments = layout.segments[number];
    member->capacity_bytes = layout.member_bytes[number];
    record.members.push_back(std::move(member));
  }
  const auto own = storage::member_of_root(record, own_root);
  if (!own) return fail(ErrorCode::invalid_argument, "this server is none of the reservation's members", where);
  RETURN_IF_ERROR(storage::check_reservation(record));
  record.pool = wanted.pool;
  record.account = wanted.account;

  if (const auto existing = reservations.all().find(wanted.name); existing != reservations.all().end()) {
    const auto& have = existing->second->record();
    const bool same = have.capacity_bytes == record.capacity_bytes && have.files_bytes == record.files_bytes &&
                      have.lifetime == record.lifetime && have.owner_uid == record.owner_uid &&
                      has_members_of(have, record) && (wanted.id.empty() || have.id == wanted.id) &&
                      !existing->second->retiring();
    if (!same) {
      return fail(
          ErrorCode::already_exists,
          fmt::format("a reservation of this name exists with {} for streams and {} for files, for user {}; destroy it "
                      "first, or choose another name",
                      size_text(have.capacity_bytes), size_text(have.files_bytes), have.owner_uid),
          where);
    }
    connection_.answer(protocol::MessageType::reservations_answer, message.request,
                       answer_with(std::array{existing->second->info()}));
    return {};
  }
  const ServerInfo pool = server.info();
  const std::uint64_t granted_bytes = storage::granted_bytes(record, *own);
  if (granted_bytes > pool.pool_bytes - std::min(pool.pool_bytes, pool.reserved_bytes)) {
    return fail(ErrorCode::no_space,
                fmt::format("the pool has {}, of which {} are reserved: {} more do not fit; destroy a reservation, or "
                            "run `forebay down --keep`, then `forebay up` with a larger --capacity",
                            size_text(pool.pool_bytes), size_text(pool.reserved_bytes), size_text(granted_bytes)),
                where);
  }
  if (server.files_groups() && *own == 0) {
    ASSIGN_OR_RETURN(record.files_group, reservations.free_files_group(*server.files_groups()));
  }
  reservations.names_in_work.try_emplace(record.name);
  reservations.bytes_in_work += granted_bytes;
  reservations.files_groups_in_work.insert(record.files_group);
  auto shared = std::make_shared<reservation::ReservationT>(std::move(record));
  server.side_worker().add(
      [&server, &reservations, this, alive = connection_.alive(), shared, own = *own, request = message.request] {
        auto created = server.stream_services().store.create(*shared, own);
        fail_point("server.reservation.created");
        server.stream_services().loop.post([&server, &reservations, this, alive, shared, own, request,
                                            created = std::move(created)] {
          reservations.end_work(shared->name);
          reservations.bytes_in_work -= storage::granted_bytes(*shared, own);
          reservations.files_groups_in_work.erase(shared->files_group);
          if (!created) {
            if (alive.expired()) return;
            Error error = created.error();
            if (error.code == ErrorCode::no_space) {
              error.what = "reservation " + shared->name + ": " + error.what + "; the file system of " +
                           server.info().root + " has too little room for " + std::to_string(shared->capacity_bytes) +
                           " bytes: free some space, or create a smaller reservation";
            }
            connection_.answer_failure(request, error);
            return;
          }
          log::info("reservation {} created: {} bytes in {} segments", shared->name, shared->capacity_bytes,
                    shared->members[own]->segments);
          Reservation& reservation = reservations.add(std::move(*shared));
          if (alive.expired()) return;
          connection_.answer(protocol::MessageType::reservations_answer, request,
                             answer_with(std::array{reservation.info()}));
        });
      });
  return {};
}

void AdminSession::answer_done_or_failed(std::uint32_t request, const Result<void>& done) {
  if (done) {
    connection_.answer_done(request);
  } else {
    connection_.answer_failure(request, done.error());
  }
}

Result<void> AdminSession::destroy_reservation(const protocol::Message& message,
                                               const wire::ReservationDestroyT& asked) {
  AdministeredServer& server = server_;
  ReservationTable& reservations = server.reservations();
  const std::string name = asked.name;
  const Peer& peer = connection_.peer();
  const auto found = reservations.all().find(name);
  // Whoever may not use the reservation is told the same whether there is one, there is none, or it is in work.
  if (found == reservations.all().end() && !peer.administrator) return fail(Reservation::denial(name, peer));
  if (found != reservations.all().end()) {
    RETURN_IF_ERROR(found->second->admit(peer, Rights::own));
    // A share goes after its home, by the manager's word alone.
    if (!peer.administrator) RETURN_IF_ERROR(found->second->check_home());
  }
  if (postpone_if_in_work(name, message, true)) return {};
  if (found == reservations.all().end()) {
    // An earlier attempt may have failed at just this.
    server.errand_worker().add_for(peer.uid, [&server, this, alive = connection_.alive(), request = message.request] {
      auto synced = server.stream_services().store.sync_removals();
      server.stream_services().loop.post([this, alive, request, synced = std::move(synced)] {
        if (!alive.expired()) answer_done_or_failed(request, synced);
      });
    });
    return {};
  }
  Reservation& reservation = *found->second;
  if (!asked.force) {
    std::vector<Stream*> streams;
    for (auto& [stream_name, stream] : reservation.streams()) streams.push_back(stream.get());
    if (const auto error = loss_of(streams)) return fail(*error);
  }
  // Nothing may hold files/, which may be mounted.
  if (reservations.files_sharing().stop(name, [this, alive = connection_.alive(), type = message.type,
                                               request = message.request, body = message.body] {
        if (!alive.expired()) handle({type, request, body, {}});
      })) {
    return {};
  }
  reservation.space().segments().retiring = true;
  reservations.names_in_work.try_emplace(name);
  const uid_t owner = reservation.record().owner_uid;
  server.errand_worker().add_for(owner, [&server, &reservations, this, alive = connection_.alive(), name,
                                         id = reservation.record().id, request = message.request] {
    auto retired = server.stream_services().store.retire(id);
    const bool stays = !retired && server.stream_services().store.is_in_place(id);
    fail_point("server.reservation.retired");
    server.stream_services().loop.post(
        [&reservations, this, alive, name, request, retired = std::move(retired), stays] {
          reservations.end_work(name);
          if (!retired) log::error("reservation {} could not be destroyed: {}", name, retired.error().message());
          if (!stays) {
            log::info("reservation {} destroyed", name);
            reservations.forget(name);
          } else if (const auto still = reservations.all().find(name); still != reservations.all().end()) {
            still->second->space().segments().retiring = false;
            if (still->second->record().files_access_due)
              reservations.files_sharing().begin(name, [](const Result<void>&) {});
            still->second->space().queue().changed(SpaceChange::more);
          }
          if (!alive.expired()) answer_done_or_failed(request, retired);
        });
  });
  return {};
}

Result<void> AdminSession::query_reservations(const protocol::Message& message, const wire::ReservationsQueryT& asked) {
  AdministeredServer& server = server_;
  ReservationTable& reservations = server.reservations();
  std::vector<ReservationInfo> infos;
  if (asked.names.size() > protocol::names_asked_max) {
    return fail(ErrorCode::invalid_argument, fmt::format("a request asks for {} reservations by name, of {} at most",
                                                         asked.names.size(), protocol::names_asked_max));
  }
  const std::set<std::string_view> of_these(asked.names.begin(), asked.names.end());
  // Shares of reservations whose home is another server are the manager's to know.
  const bool with_shares = connection_.peer().administrator;
  if (!asked.name.empty()) {
    // What serves nothing is told of all the same, with the reason.
    ASSIGN_OR_RETURN(auto reservation, reservations.find_any(asked.name, connection_.peer(), Rights::read));
    if (!with_shares) RETURN_IF_ERROR(reservation->check_home());
    // The manager, which asks as an administrator, tells others what it hears.
    const bool owners = connection_.peer().uid == reservation->record().owner_uid;
    infos.push_back(owners ? reservation->owners_info() : reservation->info());
  } else {
    for (auto& [name, reservation] : reservations.all()) {
      if (!of_these.empty() && !of_these.contains(name)) continue;
      if (!reservation->retiring() && (with_shares || reservation->is_home()) &&
          reservation->rights_of(connection_.peer()).allow(Rights::read))
        infos.push_back(reservation->info());
    }
  }
  if (asked.uncounted) {
    connection_.answer(protocol::MessageType::reservations_answer, message.request, answer_with(infos));
    return {};
  }
  // Files are counted by walking their trees, which may take long: nothing for who has left.
  const uid_t user =
      connection_.peer().administrator ? asked.turn_of.value_or(connection_.peer().uid) : connection_.peer().uid;
  const bool taken = server.side_worker().add_for(
      user, connection_.alive(),
      [&server, this, alive = connection_.alive(), infos = std::move(infos), request = message.request]() mutable {
        for (ReservationInfo& info : infos) {
          const auto measured = server.stream_services().store.measure_files(info.id);
          if (measured) {
            info.files_used_bytes = measured->bytes;
          } else {
            log::warning("files of {} are not counted: {}", info.name, measured.error().message());
          }
        }
        server.stream_services().loop.post([this, alive, infos = std::move(infos), request] {
          if (alive.expired()) return;
          connection_.answer(protocol::MessageType::reservations_answer, request, answer_with(infos));
        });
      });
  if (taken) return {};
  return fail(ErrorCode::busy, fmt::format("user {} has {} requests that wait for files to be counted, as many as may "
                                           "be; wait for their answers first",
                                           user, Worker::waiting_of_user_max));
}

}  // namespace forebay::server
