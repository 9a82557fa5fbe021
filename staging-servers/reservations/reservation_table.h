// SPDX-License-Identifier: Apache-2.0
// All reservations of a server, by name: those that are there, and those that are being created or destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "loop/worker.h"
#include "reservations/files_sharing.h"
#include "reservations/reservation.h"

namespace forebay::server {

/// invalid_argument, with the rule, if this cannot be a reservation's name.
Result<void> check_reservation_name(const std::string& name);

class ReservationTable {
 public:
  using Map = std::map<std::string, std::unique_ptr<Reservation>>;

  /// `host` is asked when reservations are added, not before.
  ReservationTable(ReservationHost& host, Worker& errand_worker, Worker& side_worker)
      : host_(host), errand_worker_(errand_worker), files_sharing_(host, *this, errand_worker, side_worker) {}

  Map& all() noexcept { return reservations_; }
  const Map& all() const noexcept { return reservations_; }
  /// As OtherMembers::earlier_are_gone(), of all reservations.
  bool earlier_readers_are_gone() const;
  /// invalid_argument for what cannot be a name; not_found, or permission_denied with the same words for those that may
  /// not know; permission_denied for those that may do less than this.
  Result<Reservation*> find(const std::string& name, const Peer& peer, Rights needed);
  /// The same where this server is not its home; find() refuses that, for streams and files are there.
  Result<Reservation*> find_any(const std::string& name, const Peer& peer, Rights needed);
  /// After the folder is whole on disk.
  Reservation& add(reservation::ReservationT record);
  /// It is destroyed: its clients are told.
  void forget(const std::string& name);

  /// Names of reservations that are being created, changed, shared or destroyed right now, and what waits for the end
  /// of that.
  std::map<std::string, std::vector<std::function<void()>>> names_in_work;
  void end_work(const std::string& name);
  /// Bytes of creations in work, so that two at once do not overcommit the pool.
  std::uint64_t bytes_in_work = 0;
  /// Group ids of creations in work.
  std::set<std::uint32_t> files_groups_in_work;
  /// What all of them take of the pool, with creations in work.
  std::uint64_t reserved_bytes() const noexcept { return granted_bytes_ + bytes_in_work; }
  /// A reservation has another lifetime or capacity for files, on disk already.
  void set_grant(Reservation& reservation, const reservation::ReservationT& record);
  /// Streams of all reservations, and of those of this owner.
  struct StreamCounts {
    std::size_t all = 0;
    std::size_t own = 0;
  };
  StreamCounts count_streams(uid_t owner) const;
  /// It has a stream from now on.
  void has_streams(Reservation& reservation) { with_streams_.insert(&reservation); }

  FilesSharing& files_sharing() noexcept { return files_sharing_; }
  /// A group id of this range that names no reservation yet. no_space if there is none.
  Result<std::uint32_t> free_files_group(const storage::GroupRange& range) const;

  /// At start: tells the file system, in the background, what shares a server before this one had no time for.
  void finish_sharing();

  /// To be called each second: looks at the segments that somebody may have open for writing.
  void guard_segments();
  /// Something outside of them may have made space: a client's end, or what was deleted.
  void space_may_be_free();
  /// Deletes in the background what lies in quarantine.
  void purge_quarantine();

 private:
  void purge_round();

  ReservationHost& host_;
  Worker& errand_worker_;
  FilesSharing files_sharing_;
  Map reservations_;
  std::uint64_t granted_bytes_ = 0;      ///< of all of them: there may be ten thousand, and every change asks for it
  std::string guarded_until_;            ///< where the probes of the last round ended
  std::set<Reservation*> with_streams_;  ///< those that have or had streams: only there anybody waits for space
  bool purging_ = false;
  bool purge_again_ = false;
};

}  // namespace forebay::server
