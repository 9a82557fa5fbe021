// SPDX-License-Identifier: Apache-2.0
// Sharing a reservation with a user or a group changes the record on disk first, then open sessions, then files/.
#include <array>
#include <utility>

#include "administration/admin_requests.h"
#include "administration/admin_session.h"
#include "administration/administered_server.h"
#include "base/return_error.h"
#include "reservations/shares.h"
#include "streams/stream.h"

namespace forebay::server {
Result<void> AdminSession::share_reservation(const protocol::Message& message, const wire::ReservationShareT& wish) {
  AdministeredServer& server = server_;
  ReservationTable& reservations = server.reservations();
  ASSIGN_OR_RETURN(auto found, reservations.find(wish.name, connection_.peer(), Rights::own));
  if (!wish.share) return fail(ErrorCode::protocol, "a share without a user or a group");
  auto share = protocol::from_wire<Share>(*wish.share);
  if (!share) return fail(std::move(share.error()));
  if (postpone_if_in_work(wish.name, message, false)) return {};
  Reservation& reservation = *found;
  RETURN_IF_ERROR(check_share(reservation.record(), *share));
  ASSIGN_OR_RETURN(auto changed, with_share(reservation.record(), *share));
  reservations.names_in_work.try_emplace(wish.name);
  auto shared = std::make_shared<reservation::ReservationT>(std::move(changed));
  server.errand_worker().add(
      [&server, &reservations, this, alive = connection_.alive(), shared, request = message.request] {
        bool recorded = false;
        auto done = put_shares_into_effect(server.stream_services().store, *shared, recorded);
        server.stream_services().loop.post(
            [&server, &reservations, this, alive, shared, request, recorded, done = std::move(done)] {
              reservations.end_work(shared->name);
              const auto still = reservations.all().find(shared->name);
              if (still == reservations.all().end()) return;
              if (recorded) {
                still->second->set_access(*shared);
                server.rights_changed(shared->name);
              }
              if (alive.expired()) return;
              if (!done) {
                Error error = done.error();
                if (recorded)
                  error.what = "the share counts for streams, but files/ could not be shared: " + error.what +
                               "; run the same command again";
                connection_.answer_failure(request, error);
                return;
              }
              connection_.answer(protocol::MessageType::reservations_answer, request,
                                 answer_with(std::array{still->second->info()}));
            });
      });
  return {};
}

}  // namespace forebay::server
