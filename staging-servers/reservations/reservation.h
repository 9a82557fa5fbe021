// SPDX-License-Identifier: Apache-2.0
// A reservation at run time: its space, its streams, who may use it, and the queue of writers that wait for space.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <forebay/admin.h>
#include <forebay/protocol/messages_generated.h>
#include <forebay/writer.h>

#include "daemon/event_loop.h"
#include "reservations/space_map.h"
#include "storage/journal.h"
#include "storage/reservation_store.h"

namespace forebay::server {

struct Peer;
class Server;
class Stream;

/// A writer that waits for space. Served in the order of the steps' beginnings, so open steps never wait for each
/// other.
struct SpaceWaiter {
  std::uint64_t order = 0;  ///< of the step's first request
  std::uint64_t bytes = 0;
  WhenFull when_full = WhenFull::block;
  Stream* stream = nullptr;
  Owner owner;
  std::function<void(Result<std::vector<Extent>>)> answer;
  std::optional<EventLoop::TimerId> timer;
  /// Whether it can end at all was looked at.
  bool judged = false;
};

class Reservation {
 public:
  Reservation(Server& server, reservation::ReservationT record);
  ~Reservation();

  const reservation::ReservationT& record() const noexcept { return record_; }
  const std::string& name() const noexcept { return record_.name; }
  Server& server() noexcept { return server_; }
  SpaceMap& space() noexcept { return space_; }

  /// permission_denied unless the peer is the owner, in the owning group, or an administrator.
  Result<void> admit(const Peer& peer) const;
  /// What a peer is told who may not know whether there is such a reservation.
  static Error denial(const std::string& name, const Peer& peer);
  bool owned_by(const Peer& peer) const noexcept;

  Stream* find_stream(const std::string& name);
  /// Makes an empty stream on disk if there is none.
  Result<Stream*> find_or_make_stream(const std::string& name);
  /// Opens the streams that lie on disk. Called once at start. `unchecked`: as unchecked_streams() said of this
  /// reservation before, earlier in this boot.
  void recover_streams(bool after_boot, const std::set<std::string>& unchecked);
  std::map<std::string, std::unique_ptr<Stream>>& streams() noexcept { return streams_; }
  Result<void> remove_stream(const std::string& name);
  /// How the journals of its streams grow, and who they ask for room.
  storage::JournalOptions journal_options();
  /// Why a stream that lies on disk could not be opened; null for others. Nothing is written in the reservation while
  /// there is one: which space it holds is not known.
  const std::string* unreadable(const std::string& name) const;
  /// corrupt, with the reason, if it is one of these.
  Result<void> check_readable(const std::string& stream) const;
  /// Unreadable streams of which it is not known what the loss of power has left of them: they are to be recovered as
  /// after a boot whenever they can be read. `all_streams` if not even their names could be read.
  const std::set<std::string>& unchecked_streams() const noexcept { return unchecked_; }
  static constexpr const char* all_streams = "*";

  /// Opens a segment anew, so that what others do with their descriptors does not meet in one file description.
  Result<Descriptor> open_segment(std::uint32_t segment, bool writable) const;
  /// not_found once it is being destroyed.
  Result<void> check_stays() const;

  /// Space for an owner, now: recycled or fresh, dropping by `when_full` if need be. Nothing if there is none at
  /// present.
  std::optional<std::vector<Extent>> allocate(Stream& stream, const Owner& owner, std::uint64_t bytes,
                                              WhenFull when_full);
  /// Only what is plentiful: a quarter of the reservation stays free for others, and nobody loses anything.
  std::vector<Extent> allocate_ahead(Stream& stream, const Owner& owner, std::uint64_t bytes);

  /// Queues for space; an error at once if nothing can end the wait.
  void wait_for_space(SpaceWaiter waiter, std::int64_t timeout_ms);
  /// True if nobody who came earlier waits for space.
  bool is_next(std::uint64_t order) const;
  /// Ends the waits of a stream's ranks with this error.
  void end_waits(const Stream& stream, const Error& error);
  std::uint64_t next_order() noexcept { return ++orders_; }

  /// Gives space back; the queue is served soon after.
  void release(const Extent& extent);
  void space_changed();
  bool anybody_waits() const noexcept { return !waiters_.empty(); }
  /// To be called where nothing came free, but something that might have will not any more: whoever waits in vain now
  /// is told soon after.
  void less_is_coming();
  /// A living writer of this stream holds the extent: others, whose journals have lost records, do not.
  void claim(const Stream& claimant, const Extent& extent);

  /// A sync of this segment failed, after which the kernel takes pages for written that are not, whoever wrote them: a
  /// later sync that succeeds says nothing. All streams that write there fail, and nobody gets space there again before
  /// the server is restarted.
  void segment_failed(std::uint32_t segment, const Error& error);
  bool has_failed(std::uint32_t segment) const { return failed_segments_.contains(segment); }

  /// Who holds the space, for people.
  std::string space_holders() const;

  std::uint64_t unnamed_pinned_bytes = 0;
  std::uint64_t unnamed_pinned_bytes_max() const noexcept { return space_.total_bytes() / 4; }
  std::uint64_t journal_bytes() const;
  /// Segments whose space the journals have, beyond their reserve.
  bool lends_segments() const noexcept { return !lent_.empty(); }
  /// Takes segments back that journals do not need any more.
  void journals_shrank();
  /// Rolls the other streams' journals that are worth it, where this one's was refused room; true if there were any.
  bool roll_others(const Stream& asker);
  ReservationInfo info(std::uint64_t files_bytes) const;

  /// True once the reservation is being destroyed: nothing new is let in, and its files may not be where they were.
  bool retiring = false;
  /// Something that a doctor should know, found at start.
  std::vector<std::string> problems;
  const std::map<std::string, std::string>& unreadable_streams() const noexcept { return unreadable_; }

 private:
  void read_streams(bool after_boot, const std::set<std::string>& unchecked);
  bool is_living(const Owner& owner) const;

  // reservation_journals.cpp
  std::uint64_t lent_bytes() const noexcept;
  /// What the journals of streams that cannot be opened take.
  std::uint64_t unreadable_bytes() const;
  /// What the reservation takes on the device besides its segments.
  std::uint64_t bytes_beside_segments() const;
  /// Part of the reserve that records of this type leave to others.
  std::uint64_t kept_back_from(storage::RecordType type) const noexcept;
  /// How much the journals would have too little if they took so much more for records of this type.
  std::uint64_t lacking_journal_bytes(std::uint64_t bytes, storage::RecordType type) const;
  bool has_journal_room(std::uint64_t bytes, storage::RecordType type) const;
  /// The same, lending segments if need be. Called while a journal takes a record.
  bool may_take(std::uint64_t bytes, storage::RecordType type);
  /// The record of the stream's next step will find room.
  bool has_room_for_step(const Stream& stream) const;
  bool has_plenty_of_journal_room(const Stream& stream) const;
  /// Makes it so if need be, by rolling journals and lending segments. Null: room for something else of that size.
  bool make_journal_room(Stream* asker, std::uint64_t bytes);
  bool make_room_for_step(Stream& stream, std::size_t extents = 0);
  Result<void> make_room_for_stream();
  /// Could steps of the stream that go make room for that many bytes and their record?
  bool drops_make_room(const Stream& stream, std::uint64_t bytes) const;
  /// Takes segments back for data where fewer can make the journals' room; true if more is free now.
  bool regain_segments();
  /// What is left for journals when segments are taken back.
  std::uint64_t room_to_leave() const;
  /// Takes back those that journals do not need any more; true if there were any.
  bool take_back_segments();
  /// Segments that can make room, or more room, with how much.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> lendable_segments() const;
  bool lend_segment();
  bool free_segment(std::uint32_t segment);
  bool take_back_segment(std::uint32_t segment);
  /// At start: which segments' space the journals have is told by the file system.
  void recover_lent_segments();

  /// What is free without anybody giving anything up.
  std::optional<std::vector<Extent>> take_free(Stream& stream, const Owner& owner, std::uint64_t bytes);
  bool adopt_segments(const Owner& owner, std::uint64_t bytes);
  /// Takes emptied segments from groups that still write; true if there were any.
  bool take_emptied_segments(const Owner& owner, std::uint64_t bytes);
  bool can_wait_end(const SpaceWaiter& waiter) const;
  /// There is space, but no room for the record of its step.
  bool waits_for_record(const SpaceWaiter& waiter) const;
  void serve_waiters();
  /// The wait that is to end without space, if there is one (else the end), and why.
  std::pair<std::list<SpaceWaiter>::iterator, const char*> next_to_give_up();
  tl::unexpected<Error> full_error(const SpaceWaiter& waiter, const std::string& why) const;

  Server& server_;
  const reservation::ReservationT record_;
  SpaceMap space_;
  std::map<std::string, std::unique_ptr<Stream>> streams_;
  std::map<std::string, std::string> unreadable_;  ///< why, by stream
  std::set<std::string> unchecked_;
  std::map<std::uint32_t, std::uint64_t> lent_;  ///< bytes by segment, which is closed in space_
  std::set<std::uint32_t> failed_segments_;      ///< closed in space_, too
  bool recovering_ = false;
  bool makes_holes_ = true;         ///< until the file system says that it cannot
  std::list<SpaceWaiter> waiters_;  ///< by order
  std::uint64_t orders_ = 0;
  bool serving_posted_ = false;
};

}  // namespace forebay::server
