// SPDX-License-Identifier: Apache-2.0
// The space of one reservation, as its streams and their writers and readers use it: who gets it, who waits for it, and
// what journals take of it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <forebay/writer.h>

#include "loop/event_loop.h"
#include "space/journal_room.h"
#include "space/segment_guard.h"
#include "space/segments.h"
#include "space/space_queue.h"
#include "space/space_user.h"

namespace forebay::server {

class ReservationSpace {
 public:
  /// All of these outlive it. `own_member`: Segments.
  ReservationSpace(EventLoop& loop, Device& device, storage::ReservationStore& store,
                   const reservation::ReservationT& record, std::uint16_t own_member = 0);

  const std::string& reservation() const noexcept { return segments_.reservation(); }
  /// Whose turns what it has done takes.
  uid_t owner_uid() const noexcept { return segments_.record().owner_uid; }
  Segments& segments() noexcept { return segments_; }
  const Segments& segments() const noexcept { return segments_; }
  SpaceMap& map() noexcept { return segments_.map(); }
  const SpaceMap& map() const noexcept { return segments_.map(); }
  SpaceQueue& queue() noexcept { return queue_; }
  JournalRoom& journal_room() noexcept { return journal_room_; }
  const JournalRoom& journal_room() const noexcept { return journal_room_; }

  /// Space for an owner, now: recycled or fresh, dropping by `when_full` if need be. Nothing if there is none at
  /// present.
  std::optional<std::vector<Extent>> allocate(SpaceUser& user, const Owner& owner, std::uint64_t bytes,
                                              WhenFull when_full, const SpacePlace& place);
  /// Only what is plentiful: a quarter of the reservation stays free for others, and nobody loses anything.
  std::vector<Extent> allocate_ahead(SpaceUser& user, const Owner& owner, std::uint64_t bytes, const SpacePlace& place);
  /// Gives space back.
  void release(const Extent& extent);

  // What writers do to the files of segments
  SegmentGuard& guard() noexcept { return guard_; }
  /// Segments::open_to_write() of one that is looked at from then on.
  Result<Descriptor> open_to_write(std::uint32_t segment, uid_t user);
  /// At a start. `after_boot`: nobody can have a segment open from before.
  void begin_guarding(bool after_boot);
  /// To be called each second: looks at all segments that somebody may have open for writing. Takes at most `probes`
  /// lease probes, and counts them off.
  void guard_segments(std::size_t& probes);
  /// The same before a commit from these: what is wrong with one of them, for people. Nothing if all are sound. Small
  /// steps come every few microseconds, and what was looked at a millisecond ago is not looked at again.
  std::optional<std::string> fault_in(const std::set<std::uint32_t>& segments);

  /// A living writer of this stream holds the extent: others, whose journals have lost records, do not.
  void claim(const SpaceUser& claimant, const Extent& extent);
  /// A sync of this segment failed, after which the kernel takes pages for written that are not, whoever wrote them: a
  /// later sync that succeeds says nothing. All streams that write there fail, and nobody gets space there again before
  /// the server is restarted.
  void segment_failed(std::uint32_t segment, const Error& error);
  /// Something that a doctor should know.
  std::vector<std::string> problems;

  /// Could steps of the stream that go make room for that many bytes and their record?
  bool drops_make_room(const SpaceUser& user, std::uint64_t bytes) const;

  /// Who holds the space, for people.
  std::string holders() const;

  std::uint64_t unnamed_pinned_bytes = 0;
  std::uint64_t cut_pinned_bytes = 0;  ///< for readers on other nodes whose connection was cut; at most as much
  std::map<uid_t, std::uint64_t> guest_pinned_bytes;  ///< of these, each user's who may only read here
  std::uint64_t unnamed_pinned_bytes_max() const noexcept { return map().total_bytes() / 4; }

 private:
  /// What is free without anybody giving anything up.
  std::optional<std::vector<Extent>> take_free(SpaceUser& user, const Owner& owner, std::uint64_t bytes,
                                               const SpacePlace& place);
  /// The same of the map, on the members that the place asks for.
  std::optional<std::vector<Extent>> take_from_members(const Owner& owner, std::uint64_t bytes, const SpacePlace& place,
                                                       std::vector<std::uint32_t>& new_segments);

  Segments segments_;
  SegmentGuard guard_;
  std::uint32_t next_probed_ = 0;
  std::map<std::uint32_t, std::int64_t> looked_before_commit_ns_;  ///< monotonic
  SpaceQueue queue_;
  JournalRoom journal_room_;
};

}  // namespace forebay::server
