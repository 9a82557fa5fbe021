// SPDX-License-Identifier: Apache-2.0
// Who may do what in a reservation: what its record says of a peer, and how a share changes the record. See
// docs/design/sharing.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include <forebay/admin.h>
#include <forebay/result.h>
#include <forebay/storage/reservation_generated.h>

namespace forebay::storage {
class ReservationStore;
}  // namespace forebay::storage

namespace forebay::server {

struct Peer;
class Reservation;

/// Root, the server's user and the owner own it. For others their own share counts, alone; without one the most that
/// their groups have, of which the owner's may write unless a share says otherwise.
Rights rights_in(const reservation::ReservationT& record, const Peer& peer);

/// A token of this user is void once this is greater than when the token was made. It only grows.
std::uint64_t access_generation(const reservation::ReservationT& record, uid_t uid) noexcept;
/// The same of all users together.
std::uint64_t access_generation(const reservation::ReservationT& record) noexcept;

std::vector<Share> shares_of(const reservation::ReservationT& record);

/// invalid_argument if this cannot be a share: of the owner, to own, of no known kind.
Result<void> check_share(const reservation::ReservationT& record, const Share& share);

/// The record with this share in place of what this user or group had. If somebody may do less than before, an access
/// generation is raised: the user's, or that of all. Where there are too many shares, one of a group goes that gives
/// nothing; no_space if there is none.
Result<reservation::ReservationT> with_share(const reservation::ReservationT& record, const Share& share);

/// What of files/ a pass could not share, for people; empty: nothing.
std::string text_of_unfinished(const Reservation& reservation);
/// What shares do not reach, because it was not made in the reservation.
std::string text_of_untouched(const Reservation& reservation);

/// In a worker: writes the record with its new shares. unsupported, and nothing done, if the file system of files/
/// cannot express them. `recorded`: the shares count; that files/ are to be told of them says
/// `record.files_access_due`, on disk too.
Result<void> record_shares(storage::ReservationStore& store, reservation::ReservationT& record, bool& recorded);

}  // namespace forebay::server
