// SPDX-License-Identifier: Apache-2.0
// A reservation's share on a server that is not its home: segments, who may touch them by the home's permits, and what
// the home asks. It knows no streams.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/permit.h"
#include "fabric/write_window.h"
#include "loop/event_loop.h"
#include "loop/worker.h"
#include "members/sync_counters.h"
#include "space/reader_presence.h"
#include "space/reservation_space.h"

namespace forebay::server {

class Connection;
class MemberSession;

class MemberShare {
 public:
  /// Of one request.
  static constexpr std::size_t extents_max = 4096;
  /// Of one request for checksums: a fraction of a second.
  static constexpr std::uint64_t checksum_bytes_max = std::uint64_t{64} << 20;

  struct Services {
    EventLoop& loop;
    Device& device;
    Worker& sync_worker;
    Worker& errand_worker;
    Worker& counter_worker;
    std::uint64_t storage_incarnation = 0;
    std::uint64_t server_run = 0;
    std::int64_t silence_ns = 0;  ///< a home says each second that it lives; without it nobody knows who may still read
    MappingUsers& mapping_users;
  };
  /// All of these outlive it. `folder`: the share's, for what is to survive.
  MemberShare(const Services& services, ReservationSpace& space, const std::string& folder);
  ~MemberShare();

  ReservationSpace& space() noexcept { return space_; }
  std::uint64_t storage_incarnation() const noexcept { return services_.storage_incarnation; }
  std::uint64_t server_run() const noexcept { return services_.server_run; }
  std::uint64_t permit_seen() const noexcept { return permit_seen_; }
  /// How often it has synced, as it is stored here.
  std::uint64_t syncs() const { return counters_.stored(own_line); }
  /// The highest such number that the home is known to have stored, likewise.
  std::uint64_t home_syncs() const { return counters_.stored(home_line); }

  /// The home lives, and has this reservation.
  void heard();
  /// It has stored this number of a sync, which is stored here soon.
  void home_has(std::uint64_t syncs) { counters_.raise(home_line, syncs); }
  /// permission_denied unless it is for this share and peer, and not void; unavailable where the home was not heard of
  /// for too long.
  Result<void> check(const fabric::Permit& permit, uid_t peer);
  /// What it lets its holder do is over when the share closes the session, or detach() was called. Ends the session
  /// that the same rank had before.
  void attach(MemberSession& session, const fabric::Permit& permit);
  void detach(MemberSession& session);

  /// A reader of this user on this node maps what the share has: what it is to keep open meanwhile. no_space if the
  /// user has too many of these, in all shares of this server.
  Result<Descriptor> admit_mapping(std::uint64_t presence, uid_t user);
  /// Those that somebody keeps open, since whenever. io_error where that is not known.
  Result<std::vector<std::uint64_t>> mapping();

  /// Makes permits void, and calls `closed` once nothing that they opened is written to any more.
  void fence(const wire::MemberFenceT& asked, std::function<void()> closed);
  /// Which of these nobody has open for writing. protocol if one is not its own.
  Result<std::vector<std::uint32_t>> unwritten(const std::vector<std::uint32_t>& segments);
  /// Calls `done` in the loop, unless `wanted` has expired by then, with the number of the sync: above `syncs_before`.
  Result<void> sync(const std::vector<std::uint32_t>& segments, std::uint64_t syncs_before,
                    std::weak_ptr<const bool> wanted, std::function<void(Result<std::uint64_t>)> done);
  /// The same with the checksums of these extents, which are computed elsewhere than in the loop.
  Result<void> checksum(const std::vector<wire::Extent>& extents, std::weak_ptr<const bool> wanted,
                        std::function<void(Result<wire::MemberChecksummedT>)> done);
  /// protocol if it lies on another member, or nowhere.
  Result<void> check_own(std::uint32_t segment) const;
  /// The same for what a request names: some extents, and not too many.
  Result<void> check_own(const std::vector<wire::Extent>& extents) const;

 private:
  // Of the file of counters:
  static constexpr std::size_t own_line = 0;
  static constexpr std::size_t home_line = 1;
  struct Fence {
    std::uint64_t group_below = 0;  ///< permits of `incarnation` and those before it
    std::uint32_t incarnation = 0;
    std::map<std::uint32_t, std::uint64_t> ranks_below;  ///< of the incarnation after it, or later ones, by rank

    /// All permits that it voids have lower numbers.
    std::uint64_t highest() const;
  };
  Result<void> learn_mapping(const std::string& folder);
  void forget_mapping(uid_t user);
  bool is_void(const fabric::Permit& permit) const;
  void note_fence(const wire::MemberFenceT& asked);
  void answer_when_closed();

  const Services services_;
  ReservationSpace& space_;
  SyncCounters counters_;
  std::map<MemberSession*, fabric::Permit> sessions_;          ///< with the first permit of each
  std::vector<std::shared_ptr<fabric::WriteWindow>> closing_;  ///< of sessions that ended while they wrote
  std::vector<std::function<void()>> told_when_closed_;
  std::optional<EventLoop::TimerId> closing_timer_;
  std::optional<EventLoop::TimerId> silence_timer_;
  // Permits with lower numbers are void:
  std::uint64_t writers_below_ = 0;              ///< but those of `spared_`
  std::map<std::string, std::uint64_t> spared_;  ///< streams, and what was void of each before it was spared
  std::uint64_t readers_below_ = 0;
  std::map<std::uint32_t, std::uint64_t> reader_below_;  ///< by user, where it is higher
  std::map<std::string, Fence> fences_;                  ///< by stream
  std::uint64_t permit_seen_ = 0;
  std::int64_t heard_ns_ = 0;               ///< monotonic
  std::optional<ReaderPresence> presence_;  ///< nothing where it could not be read: this member counts as away
  std::map<std::uint64_t, uid_t> mapping_;  ///< users by numbers of presences
  std::uint64_t syncs_ = 0;                 ///< the last one's number, which may not be stored yet
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace forebay::server
