// SPDX-License-Identifier: Apache-2.0
// Sharing a reservation with a user or a group changes the record on disk first, then open sessions, then files/. And
// what the owner wants to be shared that was not made in the reservation.
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "administration/admin_requests.h"
#include "administration/admin_session.h"
#include "administration/administered_server.h"
#include "base/return_error.h"
#include "reservations/shares.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

using Answer = std::function<void(const Result<ReservationInfo>&)>;

/// In the loop, when the shares lie on disk, or could not be written.
void spread_shares(AdministeredServer& server, const reservation::ReservationT& shared, bool recorded,
                   const Result<void>& done, const Answer& answer) {
  ReservationTable& reservations = server.reservations();
  const auto ended = [&server, recorded, answer, name = shared.name](const Result<void>& walked) {
    server.reservations().end_work(name);
    const auto found = server.reservations().all().find(name);
    if (found == server.reservations().all().end()) return;
    if (walked) return answer(found->second->owners_info());
    Error error = walked.error();
    if (recorded) {
      error.what = "the share counts for streams, but files/ could not be shared: " + error.what +
                   "; run the same command again";
    }
    answer(fail(std::move(error)));
  };
  const auto still = reservations.all().find(shared.name);
  if (recorded && still != reservations.all().end()) {
    still->second->set_access(shared);
    server.rights_changed(shared.name);
  }
  if (done) {
    reservations.files_sharing().begin(shared.name, ended);
  } else {
    ended(done);
  }
}

}  // namespace

Result<void> AdminSession::share_reservation(const protocol::Message& message, const wire::ReservationShareT& asked) {
  AdministeredServer& server = server_;
  ReservationTable& reservations = server.reservations();
  ASSIGN_OR_RETURN(auto found, reservations.find(asked.name, connection_.peer(), Rights::own));
  if (!asked.share) return fail(ErrorCode::protocol, "a share without a user or a group");
  auto share = protocol::from_wire<Share>(*asked.share);
  if (!share) return fail(std::move(share.error()));
  if (postpone_if_in_work(asked.name, message, false)) return {};
  RETURN_IF_ERROR(check_share(found->record(), *share));
  ASSIGN_OR_RETURN(auto changed, with_share(found->record(), *share));
  reservations.names_in_work.try_emplace(asked.name);
  auto shared = std::make_shared<reservation::ReservationT>(std::move(changed));
  const Answer answer = answer_with_one(message.request);
  server.errand_worker().add_for(shared->owner_uid, [&server, shared, answer] {
    bool recorded = false;
    auto done = record_shares(server.stream_services().store, *shared, recorded);
    server.stream_services().loop.post([&server, shared, answer, recorded, done = std::move(done)] {
      spread_shares(server, *shared, recorded, done, answer);
    });
  });
  return {};
}

Result<void> AdminSession::adopt_files(const protocol::Message& message, const wire::FilesAdoptT& asked) {
  AdministeredServer& server = server_;
  ReservationTable& reservations = server.reservations();
  ASSIGN_OR_RETURN(auto found, reservations.find(asked.name, connection_.peer(), Rights::own));
  if (asked.path.find('\0') != std::string::npos)
    return fail(ErrorCode::invalid_argument, "a path has no NUL byte", "reservation " + asked.name);
  if (postpone_if_in_work(asked.name, message, false)) return {};
  reservations.names_in_work.try_emplace(asked.name);
  reservations.files_sharing().adopt(
      found->name(), asked.path,
      [&server, name = asked.name, answer = answer_with_one(message.request)](const Result<void>& adopted) {
        server.reservations().end_work(name);
        const auto still = server.reservations().all().find(name);
        if (still == server.reservations().all().end()) return;
        if (adopted) {
          answer(still->second->owners_info());
        } else {
          answer(fail(adopted.error()));
        }
      });
  return {};
}

Answer AdminSession::answer_with_one(std::uint32_t request) {
  return [this, alive = connection_.alive(), request](const Result<ReservationInfo>& info) {
    if (alive.expired()) return;
    if (info) {
      connection_.answer(protocol::MessageType::reservations_answer, request, answer_with(std::array{*info}));
    } else {
      connection_.answer_failure(request, info.error());
    }
  };
}

}  // namespace forebay::server
