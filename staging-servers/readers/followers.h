// SPDX-License-Identifier: Apache-2.0
// The readers of a stream: positions, waits, pins, named consumers' cursors, and how steps are shared out among
// readers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>
#include <forebay/result.h>

#include "loop/event_loop.h"
#include "readers/followed_stream.h"

namespace forebay::server {

class ReaderRegistry;
class ReaderSession;
class ReservationSpace;

class Followers {
 public:
  /// All of these outlive it.
  Followers(FollowedStream& stream, const storage::StreamState& state, ReservationSpace& space, EventLoop& loop,
            ReaderRegistry& registry);
  ~Followers();
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  const storage::StreamState& state() const noexcept { return state_; }
  ReservationSpace& space() noexcept { return space_; }
  FollowedStream& stream() noexcept { return stream_; }

  /// Lets a reader in: busy if its consumer has a holder. Sets the session's position.
  Result<void> join(ReaderSession& session, const wire::ReaderOpenT& wish);
  /// `holds_on`: somebody still has what it was given; its pins stay until it comes back or is gone.
  void leave(ReaderSession& session, bool holds_on = false);
  /// The session keeps its pins, and nothing else.
  void stop_following(ReaderSession& session);
  /// The stream is no more: readers are told, pins forgotten.
  void removed();

  /// Answers the session's outstanding wait if there is something to say.
  void serve(ReaderSession& session);
  /// The same for all, after a commit or another change.
  void serve_all();
  /// A new step: gives it to one reader that waits, each time to the next one in turn. Nobody gets a large one yet.
  void serve_first(std::uint64_t size_bytes);
  /// Gives it to all who wait still, a moment after the writers have been answered.
  void serve_rest_later();
  /// Those now: before steps are dropped.
  void serve_deferred();

  Result<void> get_step(ReaderSession& session, std::uint32_t request, std::uint64_t step);
  Result<void> move_cursor(ReaderSession& session, const wire::CursorMoveT& move);
  void release(ReaderSession& session, const StepKey& key);
  /// Pins a step that is about to be committed, for a session of the process that wrote it, if it has not pinned it
  /// yet. Errors: protocol, no_space (the table of pins is full).
  Result<void> pin_for_writer(std::uint64_t session, pid_t process, const StepKey& key);
  /// Whoever has pinned this step holds it no longer: what it goes on to read may be another's.
  void revoke(const StepKey& key);
  /// That step has not come to be.
  void unpin_for_writer(std::uint64_t session, const StepKey& key);
  Result<void> check(const StepKey& key) const;

  /// Durable cursors of earlier epochs that lie beyond `first` go back there.
  void set_back_cursors(std::uint64_t first);
  /// Steps from `first` on were withdrawn: readers and cursors beyond go back there.
  void rewound(std::uint64_t first);
  void status_changed();
  /// Holds steps for readers of before a restart, until they come back or are gone.
  void hold_for_absent(std::uint64_t session, const std::vector<StepKey>& keys);
  void absent_is_gone(std::uint64_t session);
  /// A reader of before a restart is back: its pins become the session's. Returns those that could not be kept.
  std::vector<StepKey> resume_pins(ReaderSession& session, const std::vector<StepKey>& wanted);

  bool any_pinned() const noexcept { return !pins_.empty(); }
  bool pinned(const StepKey& key) const { return pins_.contains(key); }
  std::uint32_t pin_count(const StepKey& key) const;
  std::uint32_t follower_count() const;
  bool waits_for_durable() const;
  bool all_passed(const std::vector<std::string>& consumers, std::uint64_t step) const;
  bool any_cursor_needs(std::uint64_t step) const;
  std::vector<ConsumerInfo> consumers() const;
  /// Steps shared out to one of several readers: chosen by the writer for readers that do not choose.
  void set_stream_distribution(StepDistribution distribution);

 private:
  struct Pin {
    std::uint32_t count = 0;
    std::uint32_t unnamed = 0;
    std::uint64_t size_bytes = 0;
  };
  /// Readers that share the steps of one consumer name out among them.
  struct Sharing {
    std::uint64_t next = 0;                                     ///< first step not given or assigned to anybody
    std::map<std::uint64_t, std::set<std::uint64_t>> assigned;  ///< round robin: whose turn steps are, by session
    std::set<std::uint64_t> returned;                           ///< assigned to readers that went before they got them
    std::size_t turn = 0;
  };

  StepDistribution distribution_of(const ReaderSession& session) const;
  const storage::StepState* next_for(ReaderSession& session);
  const storage::StepState* next_shared(ReaderSession& session, StepDistribution distribution, std::uint64_t limit);
  void assign(Sharing& sharing, const std::vector<ReaderSession*>& readers, std::uint64_t step);
  const storage::StepState* first_kept(std::uint64_t from, std::uint64_t limit) const;
  std::uint64_t visible_limit(const ReaderSession& session) const;
  std::vector<ReaderSession*> sharers(const std::string& consumer, StepDistribution distribution) const;
  /// A reader that is about to share: what it shares begins where it stands, unless others share it already.
  void begin_sharing(const ReaderSession& session);
  /// `in_turn`: with what is to be told before the next step.
  void deliver(ReaderSession& session, std::uint32_t request, const storage::StepState& step, bool in_turn);
  /// False if the table of pins is full, or what unnamed readers may pin together is pinned and it was not `held`.
  bool pin(ReaderSession& session, const StepKey& key, std::uint64_t size_bytes, bool held = false);
  ReaderSession* find(std::uint64_t session) const;
  void unpin(const StepKey& key, bool unnamed);
  /// One of the session's holds on a step; true if it was the last.
  bool let_go(ReaderSession& session, const StepKey& key);
  bool answer_end(ReaderSession& session);
  /// Lets go of what was held for an absent session; `kept`: what it has pinned itself again.
  void end_absent(std::uint64_t session, const std::map<StepKey, std::uint32_t>& kept);

  FollowedStream& stream_;
  const storage::StreamState& state_;
  ReservationSpace& space_;
  EventLoop& loop_;
  ReaderRegistry& registry_;
  std::map<std::uint64_t, ReaderSession*> sessions_;  ///< by their numbers
  std::uint64_t last_served_first_ = 0;               ///< whose turn it was at the last commit
  std::map<std::string, ReaderSession*> holders_;     ///< of named consumers with all_to_all distribution
  std::map<std::string, Sharing> sharings_;
  std::map<StepKey, Pin> pins_;
  struct AbsentPin {
    StepKey key;
    bool unnamed = false;  ///< counts among the pins of unnamed readers
  };
  std::map<std::uint64_t, std::vector<AbsentPin>> absent_;  ///< pins of readers without a connection, by session
  StepDistribution stream_distribution_ = StepDistribution::all_to_all;
  std::optional<EventLoop::TimerId> deferred_;
};

}  // namespace forebay::server
