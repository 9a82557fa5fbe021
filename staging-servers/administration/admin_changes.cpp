// SPDX-License-Identifier: Apache-2.0
// Changing what a reservation was given: its lifetime, and its capacity for files. The record on disk changes first.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "administration/admin_requests.h"
#include "administration/admin_session.h"
#include "administration/administered_server.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

/// In a worker: refused if more lies in files/ than it is to have, or if the capacity is, or would have to be, that of
/// an image.
Result<void> check_files_fit(storage::ReservationStore& store, const reservation::ReservationT& record,
                             std::uint64_t had_bytes) {
  if (store.has_files_image(record.id)) {
    return fail(ErrorCode::refused,
                "its files/ is an image of a fixed size; create another reservation and move the files",
                "reservation " + record.name);
  }
  if (store.holds_files() && had_bytes == 0) {
    return fail(ErrorCode::refused,
                "new files/ are images of a fixed size here, and this one is an open folder; create a reservation with "
                "the capacity for files that you need",
                "reservation " + record.name);
  }
  if (record.files_bytes >= had_bytes) return {};
  ASSIGN_OR_RETURN(const auto used, store.measure_files(record.id));
  const std::string where = "reservation " + record.name;
  if (used.bytes > record.files_bytes) {
    return fail(ErrorCode::refused,
                fmt::format("{} lie in its files/, more than {}; remove or stage out files first",
                            size_text(used.bytes), size_text(record.files_bytes)),
                where);
  }
  if (used.missed == 0) return {};
  return fail(ErrorCode::refused,
              fmt::format("what lies in its files/ cannot be measured: {}; remove that first", used.first_missed),
              where);
}

}  // namespace

Result<void> AdminSession::change_reservation(const protocol::Message& message, const wire::ReservationChangeT& asked) {
  AdministeredServer& server = server_;
  ReservationTable& reservations = server.reservations();
  const std::string where = "reservation " + asked.name;
  if (!connection_.peer().administrator)
    return fail(ErrorCode::permission_denied,
                "only the server's own user may change reservations; ask the manager (`forebay change`)", where);
  ASSIGN_OR_RETURN(Reservation* const reservation, reservations.find(asked.name, connection_.peer(), Rights::own));
  if (asked.lifetime && (*asked.lifetime < 1 || *asked.lifetime > 2))
    return fail(ErrorCode::invalid_argument, "the lifetime must be job or persistent", where);
  if (postpone_if_in_work(asked.name, message, false)) return {};

  const reservation::ReservationT& have = reservation->record();
  auto changed = std::make_shared<reservation::ReservationT>(have);
  changed->lifetime = asked.lifetime.value_or(have.lifetime);
  if (asked.files_bytes) {
    ASSIGN_OR_RETURN(const auto layout, storage::layout_for(have.capacity_bytes, *asked.files_bytes));
    changed->files_bytes = layout.files_bytes;
  }
  if (changed->lifetime == have.lifetime && changed->files_bytes == have.files_bytes) {
    connection_.answer(protocol::MessageType::reservations_answer, message.request,
                       answer_with(std::array{reservation->info()}));
    return {};
  }
  const std::uint64_t more_bytes = changed->files_bytes - std::min(changed->files_bytes, have.files_bytes);
  const ServerInfo pool = server.info();
  if (more_bytes > pool.pool_bytes - std::min(pool.pool_bytes, pool.reserved_bytes)) {
    return fail(ErrorCode::no_space,
                fmt::format("the pool has {}, of which {} are reserved: {} more do not fit; destroy a reservation, or "
                            "ask for less",
                            size_text(pool.pool_bytes), size_text(pool.reserved_bytes), size_text(more_bytes)),
                where);
  }
  reservations.names_in_work.try_emplace(asked.name);
  reservations.bytes_in_work += more_bytes;
  server.errand_worker().add_for(have.owner_uid, [&server, &reservations, this, alive = connection_.alive(), changed,
                                                  more_bytes, had_bytes = have.files_bytes, request = message.request] {
    storage::ReservationStore& store = server.stream_services().store;
    Result<void> done =
        changed->files_bytes != had_bytes ? check_files_fit(store, *changed, had_bytes) : Result<void>();
    if (done) done = store.replace_record(*changed);
    fail_point("server.reservation.changed");
    server.stream_services().loop.post(
        [&reservations, this, alive, changed, more_bytes, request, done = std::move(done)] {
          reservations.end_work(changed->name);
          reservations.bytes_in_work -= more_bytes;
          const auto still = reservations.all().find(changed->name);
          if (still == reservations.all().end()) return;
          if (done) {
            log::info("reservation {} changed: {} bytes for files, lifetime {}", changed->name, changed->files_bytes,
                      static_cast<Lifetime>(changed->lifetime) == Lifetime::persistent ? "persistent" : "job");
            reservations.set_grant(*still->second, *changed);
          }
          if (alive.expired()) return;
          if (!done) {
            connection_.answer_failure(request, done.error());
            return;
          }
          connection_.answer(protocol::MessageType::reservations_answer, request,
                             answer_with(std::array{still->second->info()}));
        });
  });
  return {};
}

}  // namespace forebay::server
