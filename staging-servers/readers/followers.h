// SPDX-License-Identifier: Apache-2.0
// The readers of a stream: where each of them stands, who waits, and who gets which step when. Pins, cursors and the
// sharing of steps are classes of their own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>
#include <forebay/result.h>

#include "loop/event_loop.h"
#include "readers/consumer_cursors.h"
#include "readers/followed_stream.h"
#include "readers/follower.h"
#include "readers/next_steps.h"
#include "readers/serving_turns.h"
#include "readers/step_pins.h"
#include "readers/step_sharing.h"
#include "readers/writer_waits.h"

namespace forebay::server {

class ReaderRegistry;
class ReaderSession;
class ReservationSpace;

/// What readers are told that wait for a writer which was refused.
Error refused_writer(const std::string& stream, const std::string& why);

/// The reader that is furthest behind: so many steps are there that it has not been given.
struct ReaderLag {
  std::uint64_t steps = 0;
  std::string reader;  ///< for people: its consumer's name, and its process or address
};

class Followers final : private Serving {
 public:
  /// All of these outlive it.
  Followers(FollowedStream& stream, const storage::StreamState& state, ReservationSpace& space, EventLoop& loop,
            ReaderRegistry& registry);
  ~Followers() override;
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  const storage::StreamState& state() const noexcept { return state_; }
  ReservationSpace& space() noexcept { return space_; }
  FollowedStream& stream() noexcept { return stream_; }
  StepPins& pins() noexcept { return pins_; }
  const StepPins& pins() const noexcept { return pins_; }
  ConsumerCursors& cursors() noexcept { return cursors_; }
  const ConsumerCursors& cursors() const noexcept { return cursors_; }
  StepSharing& sharing() noexcept { return sharing_; }
  WriterWaits& writer_waits() noexcept { return writer_waits_; }

  /// Lets a reader in, which has the writer that it waits for: busy if its consumer has a holder. Sets which steps it
  /// takes, and its position.
  Result<void> join(Follower& reader);
  void leave(Follower& reader);
  /// What it was given stays; it gets nothing more.
  void stop_following(Follower& reader);
  /// It has come back with another position than the one that it joined with.
  void move_back(Follower& reader, const wire::ReaderOpenT& asked);

  /// A connection, whose steps can be pinned.
  void attach(ReaderSession& session);
  /// `holds_on`: somebody still has what it was given; its pins stay until it comes back or is gone.
  void detach(ReaderSession& session, bool holds_on);

  /// The stream is no more: readers are told, pins forgotten.
  void removed();

  /// Answers the reader's outstanding wait if there is something to say.
  void serve(Follower& reader);
  /// The same for all, after a commit or another change; of thousands, for some now and for others soon.
  void serve_all();
  /// Some of those who wait have not got yet what is there for them. Once they have, what_may_go_changed() is called.
  bool is_serving() const noexcept { return left_ > 0 || !answering_.empty(); }
  /// Ranks of this group have not got yet what their turn has brought.
  void begin_answering(const Follower& group) { answering_.insert(&group); }
  void end_answering(const Follower& group);
  /// A new step: gives it to one reader that waits, each time to the next one in turn. Nobody gets a large one yet.
  void serve_first(std::uint64_t size_bytes);
  /// Gives it to all who wait still, a moment after the writers have been answered.
  void serve_rest_later();
  /// Those now: before steps are dropped.
  void serve_deferred();
  /// Those who waited for one of them to be there have another look, soon.
  void steps_dropped();

  /// Kept steps from `first` on, at most so many (and not more than one message takes): all, or those that the reader
  /// takes.
  wire::StepsAnswerT list_steps(std::uint64_t first, std::uint32_t steps_max, const Follower* reader = nullptr) const;
  /// A kept step, or the one of this epoch that was withdrawn and that somebody holds still.
  Result<void> get_step(ReaderSession& session, const Follower& reader, std::uint32_t request, std::uint64_t step,
                        std::uint32_t epoch);
  /// Gives a step to a connection, pinned if that can be; `event`: with what else it is to be told.
  void deliver(ReaderSession& session, std::uint32_t request, const storage::StepState& step, wire::StepEventT event);
  /// Where a reader wants to go on, or what its consumer has done with.
  Result<void> move_cursor(Follower& reader, const wire::CursorMoveT& move);
  /// A step whose space is still its own: kept, or withdrawn and held by readers. Null if it is gone.
  const storage::StepState* find_step(const StepKey& key) const;
  /// Is the step still the one that was read?
  Result<void> check(const StepKey& key) const;
  /// step_gone if bytes of the step are lost, with a member's power or with its newer copy: it stays only until nobody
  /// holds it any more.
  Result<void> check_not_lost(const StepKey& key) const;
  /// StepPins::pin_for_writer() for the reader with this number.
  Result<void> pin_for_writer(std::uint64_t session, pid_t process, const StepKey& key);
  void unpin_for_writer(std::uint64_t session, const StepKey& key);
  /// All that hold this step are here, and processes of these users.
  bool is_held_only_by(const StepKey& key, const std::set<uid_t>& users) const;
  /// Whoever has pinned this step holds it no longer: what it goes on to read may be another's.
  void revoke(const StepKey& key);

  /// Steps from `first` on were withdrawn: readers and cursors beyond go back there.
  void rewound(std::uint64_t first);
  void status_changed();
  /// For whom a run is over once this group has formed, and what they are told then.
  std::map<std::uint64_t, RunEnd> runs_that_end(const journal::GroupFormedT& formed) const;
  /// It has formed.
  void end_runs(std::map<std::uint64_t, RunEnd> ends);
  void writer_came() { writer_waits_.writer_came(); }
  /// No group writes, and the one that was to come was refused: those that are here are told.
  void writer_refused(const std::string& run, const std::string& why);

  /// How many follow, or wait for a writer, and would take steps of this run.
  std::uint32_t readers_for(const std::string& run) const;
  bool waits_for_durable() const;
  /// Among those who want every step; nothing if there is none.
  std::optional<ReaderLag> furthest_behind() const;
  /// Those end with their processes, although a forked child may keep the socket open.
  void end_with_processes();
  /// Appends the readers that wait now.
  void describe_waits(std::vector<StreamWait>& waits) const;

  /// StepPins::check().
  std::size_t check_pins(bool certain) const { return pins_.check(sessions_, certain); }

 private:
  /// By run and writer group, the steps that a reader which has just come takes.
  void set_range(Follower& reader, const wire::ReaderOpenT& asked) const;
  /// The step that a reader which has just come is to get first.
  std::uint64_t first_position(const Follower& reader, const wire::ReaderOpenT& asked) const;
  std::uint64_t visible_limit(const Follower& reader) const;
  /// What is visible, and of its run.
  std::uint64_t taken_limit(const Follower& reader) const;
  ReaderSession* find(std::uint64_t session) const;
  void serve_at(std::int64_t time_ns);
  /// Serves as many as there is time for; false: some are left.
  bool serve_slice();
  bool serve_some() override;
  /// `step_left`: there is one that cannot be given now.
  bool answer_end(Follower& reader, bool step_left);
  bool answer_absence(Follower& reader, const NextStepFound& next);
  bool answer_refusal(Follower& reader);

  FollowedStream& stream_;
  const storage::StreamState& state_;
  ReservationSpace& space_;
  EventLoop& loop_;
  ReaderRegistry& registry_;
  FollowersByNumber readers_;
  std::map<std::uint64_t, ReaderSession*> sessions_;  ///< all connections, by their numbers
  std::uint64_t last_served_first_ = 0;               ///< whose turn it was at the last commit
  StepPins pins_;
  ConsumerCursors cursors_;
  StepSharing sharing_;
  NextSteps next_steps_;
  WriterWaits writer_waits_;
  std::optional<EventLoop::TimerId> deferred_;
  std::size_t left_ = 0;  ///< how many are yet to be served, from `last_served_` on
  std::uint64_t last_served_ = 0;
  std::set<const Follower*> answering_;
};

}  // namespace forebay::server
