// SPDX-License-Identifier: Apache-2.0
// What readers ask of the stream that they follow. Streams stand above and implement it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "loop/access_rights.h"
#include "storage/stream_state.h"

namespace forebay::server {

class Followers;
struct Peer;

/// A commit of a step: number and the epoch it was made in.
using StepKey = std::pair<std::uint32_t, std::uint64_t>;

class FollowedStream {
 public:
  virtual ~FollowedStream() = default;

  virtual std::string path() const = 0;
  /// The first step that is not durable for everyone to see.
  virtual std::uint64_t durable_next() const = 0;
  virtual StepSummary summary(const storage::StepState& step) const = 0;
  /// This life of the server has committed the step, less than ten seconds ago.
  virtual bool committed_lately(const StepKey& key) const = 0;
  /// Nobody waits any longer for a group that was lost.
  virtual bool grace_over() const = 0;
  /// All ranks of a writer group are there.
  virtual bool has_living_writer() = 0;
  /// How long readers wait for a group that was lost, for people.
  virtual std::string describe_grace() const = 0;

  virtual Result<void> note_cursor(journal::CursorMovedT moved) = 0;
  /// Steps that need not stay any longer go, and whoever waits for space has another look.
  virtual void what_may_go_changed() = 0;
  /// A step was unpinned for the last time; it may have been withdrawn.
  virtual void unpinned(const StepKey& key) = 0;
  /// A reader waits for what is committed to become durable.
  virtual void make_durable_soon() = 0;
  /// A reader came: writers may wait for some.
  virtual void readers_changed() = 0;
  /// A reader has got on, or has gone: writers may wait until none is too far behind.
  virtual void readers_moved() = 0;
};

/// Where reader sessions find what they are to read.
class StreamsToRead {
 public:
  virtual ~StreamsToRead() = default;
  /// Null if there is no such stream yet. Errors: invalid_argument, not_found, permission_denied (the reservation),
  /// corrupt (a stream that cannot be opened).
  virtual Result<Followers*> find_to_read(const Peer& peer, const std::string& reservation,
                                          const std::string& stream) = 0;
  /// What the peer may do there now; none where there is no such reservation.
  virtual AccessRights rights_of(const Peer& peer, const std::string& reservation) = 0;
};

}  // namespace forebay::server
