// SPDX-License-Identifier: Apache-2.0
// What the space of a reservation asks of the streams that share it. Streams stand above and implement it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "space/space_map.h"
#include "storage/stream_state.h"

namespace forebay::server {

/// A stream's journal, which shares the room for journals with others.
class JournalInRoom {
 public:
  virtual ~JournalInRoom() = default;

  /// What it takes on the device.
  virtual std::uint64_t size_bytes() const = 0;
  /// What it has without taking more.
  virtual std::uint64_t spare_bytes() const = 0;
  /// What the record of the stream's next step takes at most, about, with that many extents.
  virtual std::uint64_t step_record_bytes(std::size_t extents = 0) const = 0;
  /// Would rolling it make it smaller by a part that is worth it? Less is worth it for what its own stream wants to
  /// write.
  virtual bool is_worth_rolling(bool for_itself = false) const = 0;
  /// Would it be if all steps were dropped?
  virtual bool shrinks_with_drops() const = 0;
  /// Begins it anew with what the stream is now; false, and all is as it was, if that cannot be.
  virtual bool roll() = 0;
};

/// Space that a stream holds.
struct Holding {
  std::uint64_t bytes = 0;
  std::string text;  ///< what and why, for people; empty if nothing
};

/// A stream that holds space, or waits for it.
class SpaceUser {
 public:
  virtual ~SpaceUser() = default;

  virtual std::string path() const = 0;
  virtual const storage::StreamState& state() const = 0;
  virtual JournalInRoom& journal_in_room() = 0;
  virtual const JournalInRoom& journal_in_room() const = 0;

  // Its writers
  /// A living incarnation of it writes segments of this owner.
  virtual bool owns(const Owner& owner) const = 0;
  /// All space that one of its writers may write in is known as granted.
  virtual bool all_grants_known() const = 0;
  /// Space granted and not yet part of a step.
  virtual std::uint64_t granted_bytes() const = 0;
  /// Whose processes its living incarnation's are.
  virtual std::set<uid_t> writing_users() const = 0;
  /// Its living incarnation has done what no writer may with a segment: it ends.
  virtual void segment_misused(const std::string& what) = 0;

  // Its readers
  /// Somebody who is none of these users holds a step in this segment, and may have mapped it.
  virtual bool is_read_by_others_in(std::uint32_t segment, const std::set<uid_t>& users) const = 0;

  // What it can give
  virtual void apply_retention() = 0;
  /// Drops the oldest step that is neither precious nor needed; false if there is none, or it cannot be dropped now.
  virtual bool drop_oldest() = 0;
  /// Would drop_oldest() find a step if readers let go of theirs and consumers went on?
  virtual bool drops_when_let_go() const = 0;
  /// Space of dropped steps that comes free with a sync.
  virtual std::uint64_t unsynced_bytes() const = 0;
  /// Has that sync begin now.
  virtual void hurry_releases() = 0;
  /// A sync that is under way or to come frees space.
  virtual bool frees_with_sync() const = 0;
  /// Could its space come free without its writers or by their coming back: unpinning, consumers passing, staging?
  virtual bool may_free_space() const = 0;
  /// What its writers' next steps may push out.
  virtual std::uint64_t bytes_that_commits_free() const = 0;

  // Which segments are its own, in its journal
  virtual Result<void> note_owned(journal::SegmentsOwnedT owned) = 0;
  virtual Result<void> note_left(journal::SegmentsLeftT left) = 0;
  /// Where records are gone: steps that claim any of this space, which another has, were dropped by them.
  virtual void give_way(const Extent& extent) = 0;

  /// Something that is not durable lies in this segment, or may come to lie there with the open step.
  virtual bool writes_unsynced_in(std::uint32_t segment) const = 0;
  virtual void fail_stream(const std::string& text) = 0;

  virtual Holding holding() const = 0;
};

}  // namespace forebay::server
