// SPDX-License-Identifier: Apache-2.0
// Who holds which step of a stream: readers, writers whose programs hold allocated memory, and readers that a restart
// of the server has cut off. A step that is held stays where it is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <forebay/result.h>

#include "readers/followed_stream.h"

namespace forebay::server {

class ReaderRegistry;
class ReaderSession;
class ReservationSpace;

/// Whose share a pin counts in.
struct PinLimit {
  bool unnamed = false;        ///< in that of readers without a name
  std::optional<uid_t> guest;  ///< in that of this user, too, who may only read here
};

class StepPins {
 public:
  /// All of these outlive it.
  StepPins(FollowedStream& stream, const storage::StreamState& state, ReservationSpace& space, ReaderRegistry& registry)
      : stream_(stream), state_(state), space_(space), registry_(registry) {}

  /// False if the table of pins is full, or unnamed readers have pinned as much as they may together, or a user who may
  /// only read as much as others could still pin.
  bool pin(ReaderSession& session, const StepKey& key, std::uint64_t size_bytes);
  /// One of the session's holds on a step.
  void release(ReaderSession& session, std::span<const StepKey> keys);
  /// Pins a step that is about to be committed, for a session of the process that wrote it, if it has not pinned it
  /// yet. Errors: protocol (null is no such session), no_space (the table of pins is full).
  Result<void> pin_for_writer(ReaderSession* holder, pid_t process, const StepKey& key);
  /// That step has not come to be.
  void unpin_for_writer(ReaderSession& holder, const StepKey& key) { let_go(holder, key); }
  /// A reader on another node maps there from now on: a restarted server is to know what it holds. False if the table
  /// of pins is full.
  bool outlast_restarts(ReaderSession& session);
  /// The connection has ended. `holds_on`: somebody still has what it was given; its pins stay until it comes back or
  /// is gone. Those of readers on other nodes that map nothing stay only as far as all of them together hold no more
  /// than unnamed readers may.
  void leave(ReaderSession& session, bool holds_on);

  /// Holds steps for readers of before a restart, until they come back or are gone.
  void hold_for_absent(std::uint64_t session, const std::vector<StepKey>& keys);
  void absent_is_gone(std::uint64_t session) { end_absent(session, {}); }
  /// A reader of before a restart is back: its pins become the session's. Returns those that could not be kept.
  std::vector<StepKey> resume(ReaderSession& session, const std::vector<StepKey>& wanted);

  /// The stream is no more: no restart is to know of these pins.
  void forget(const ReaderSession& session);
  void forget_absent();

  bool is_empty() const noexcept { return pins_.empty(); }
  bool is_pinned(const StepKey& key) const { return pins_.contains(key); }
  std::uint32_t count(const StepKey& key) const;
  /// All steps that somebody holds.
  std::vector<StepKey> pinned() const;
  /// Bytes of steps that readers without a name hold.
  std::uint64_t unnamed_bytes() const;
  /// Bytes of steps that stay for readers on other nodes whose connection was cut.
  std::uint64_t cut_bytes() const;

  /// Ends the process if an invariant is broken; how many things were looked at. `sessions`: all connections, by their
  /// numbers. `certain`: no step of the stream went to another stream under its readers.
  std::size_t check(const std::map<std::uint64_t, ReaderSession*>& sessions, bool certain) const;

 private:
  friend struct InvariantBreaker;  // of a test
  struct Pin {
    std::uint32_t count = 0;
    std::uint32_t unnamed = 0;
    std::map<uid_t, std::uint32_t> guests;  ///< how many of the unnamed are a user's who may only read here
    std::uint64_t size_bytes = 0;
  };
  struct AbsentPin {
    StepKey key;
    PinLimit limit;
    std::uint64_t cut_bytes = 0;  ///< as counted, of a reader on another node
  };

  /// `held`: it was pinned all the time, so the limit of unnamed readers does not count.
  bool add(ReaderSession& session, const StepKey& key, std::uint64_t size_bytes, bool held);
  void remove(const StepKey& key, const PinLimit& limit);
  /// Would a pin on a step of this size be within what unnamed readers, and a guest among them, may hold?
  bool is_within(const PinLimit& limit, const Pin& pin, std::uint64_t size_bytes) const;
  /// True if it was the session's last hold.
  bool let_go(ReaderSession& session, const StepKey& key);
  /// Lets go of what was held for an absent session; `kept`: what it has pinned itself again.
  void end_absent(std::uint64_t session, const std::map<StepKey, std::uint32_t>& kept);

  FollowedStream& stream_;
  const storage::StreamState& state_;
  ReservationSpace& space_;
  ReaderRegistry& registry_;
  std::map<StepKey, Pin> pins_;
  std::map<std::uint64_t, std::vector<AbsentPin>> absent_;  ///< of readers without a connection, by session
};

}  // namespace forebay::server
