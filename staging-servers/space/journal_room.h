// SPDX-License-Identifier: Apache-2.0
// The room of a reservation's journals: their reserve and, beyond it, free space in segments that nobody writes. That
// space is returned to the device while the journals need more, so a reservation never takes more than its capacity.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <forebay/result.h>

#include "space/segments.h"
#include "space/space_user.h"
#include "storage/journal.h"

namespace forebay::server {

class SpaceQueue;

class JournalRoom {
 public:
  JournalRoom(Segments& segments, storage::ReservationStore& store, SpaceQueue& queue);

  /// How these journals grow, and who they ask for room.
  storage::JournalOptions options();
  /// While streams are being recovered, what is free is not known, and journals take what they need.
  void begin_recovery() noexcept { recovering_ = true; }
  /// Learns from the file system which segments' space the journals have, and takes back what they do not need.
  void end_recovery();

  /// What the journals take.
  std::uint64_t taken_bytes() const;
  /// What is kept for them.
  std::uint64_t reserve_bytes() const noexcept { return segments_.record().journal_reserve_bytes; }
  /// What segments make room with, beyond the reserve.
  std::uint64_t lent_bytes() const noexcept;
  bool lends_segments() const noexcept { return !lent_.empty(); }
  bool lends(std::uint32_t segment) const { return lent_.contains(segment); }
  /// True if nothing is left for the next record of a grant.
  bool is_full() const { return !has_room(0, storage::RecordType::segments_owned); }

  /// The record of the stream's next step will find room.
  bool has_room_for_step(const JournalInRoom& journal) const;
  /// There is room for the records of several steps, so that space may be granted ahead.
  bool has_plenty(const JournalInRoom& journal) const;
  /// Makes room for that record if need be, by rolling journals and lending segments.
  bool make_room_for_step(JournalInRoom& journal, std::size_t extents = 0);
  /// The same for the journal of a new stream. no_space says what to do.
  Result<void> make_room_for_stream();

  /// Rolls the other journals that are worth it, where this one was refused room; true if there were any.
  bool roll_others(const JournalInRoom& asker);
  /// To be called when journals take less than before: takes segments back that they do not need any more.
  void shrank();
  /// Takes segments back for data where fewer can make the journals' room; true if more is free now.
  bool regain_segments();

 private:
  bool has_room(std::uint64_t bytes, storage::RecordType type) const;
  /// How much the journals would have too little if they took so much more for records of this type.
  std::uint64_t lacking_bytes(std::uint64_t bytes, storage::RecordType type) const;
  /// Part of the reserve that records of this type leave to others.
  std::uint64_t kept_back_from(storage::RecordType type) const noexcept;
  /// What the reservation takes on the device besides its segments.
  std::uint64_t bytes_beside_segments() const;
  /// What the journals of streams that cannot be opened take.
  std::uint64_t unreadable_bytes() const;
  /// Lends segments until there is that much room; false if there cannot be. Called while a journal takes a record.
  bool find_room(std::uint64_t bytes, storage::RecordType type);
  /// The same, rolling journals first. Null: room for something else of that size.
  bool make_room(JournalInRoom* asker, std::uint64_t bytes);
  /// What is left for journals when segments are taken back.
  std::uint64_t room_to_leave() const;

  /// Segments that can make room, or more room, with how much.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> lendable_segments() const;
  bool lend_segment();
  bool free_segment(std::uint32_t segment);
  bool take_back_segment(std::uint32_t segment);
  /// Takes back those that journals do not need any more; true if there were any.
  bool take_back_segments();
  void learn_lent_segments();

  Segments& segments_;
  SpaceMap& map_;
  storage::ReservationStore& store_;
  SpaceQueue& queue_;
  std::map<std::uint32_t, std::uint64_t> lent_;  ///< bytes by segment, which is closed in the map
  bool recovering_ = false;
  bool makes_holes_ = true;  ///< until the file system says that it cannot
};

}  // namespace forebay::server
