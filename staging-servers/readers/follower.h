// SPDX-License-Identifier: Apache-2.0
// One reader as its stream sees it: a connection that reads alone (LoneReader), or the ranks of a group together
// (ReaderGroup). Where it stands, and its Open, which may wait for the stream and for a writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>
#include <forebay/result.h>

#include "base/clock.h"
#include "loop/access_rights.h"
#include "loop/connection.h"
#include "loop/event_loop.h"
#include "storage/stream_state.h"

namespace forebay::server {

class Followers;
class ReaderRegistry;
class ReaderSession;
class StreamsToRead;

/// Where a reader's run is over, since another one has begun.
struct RunEnd {
  std::uint64_t step = 0;  ///< takes none from this one on
  StreamStatus status = StreamStatus::ended;
  std::string text;
};

class Follower {
 public:
  /// All of these outlive it.
  Follower(EventLoop& loop, StreamsToRead& streams, ReaderRegistry& registry)
      : loop_(loop), streams_(streams), registry_(registry) {}
  virtual ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Used by Followers and its parts
  std::uint64_t number = 0;  ///< no other living reader's of the server
  AccessRights access;       ///< in the stream's reservation, when it was opened
  std::string consumer;      ///< as its cursor is called; see consumer_of_reader()
  std::string run;           ///< takes no step of another; empty: of any
  std::string share;         ///< readers with the same one share steps out, if they share any: by consumer and range
  Watermark min_watermark = Watermark::committed;
  bool latest_only = false;
  bool follow = true;
  OnUnavailable on_unavailable = OnUnavailable::wait;
  StepDistribution distribution = StepDistribution::stream_default;
  std::uint64_t first_step = 0;   ///< takes none before
  std::optional<RunEnd> run_end;  ///< another run has begun
  std::uint64_t position = 0;     ///< next step to give
  std::uint64_t skipped = 0;
  bool rewound = false;
  StreamStatus told_status = StreamStatus::waiting;
  bool status_to_tell = false;
  std::string absence;             ///< why its next step, which is there, is not given; empty: nothing keeps it
  std::string refusal_to_tell;     ///< why a writer that it waits for was refused; empty: nothing to tell
  std::int64_t wait_since_ns = 0;  ///< of what it waits for, or of the Open that waits; wall clock

  const wire::ReaderOpenT& asked() const noexcept { return asked_; }
  /// May it take steps of a writer of this run?
  bool wants_run(const std::string& wanted) const { return asked_.run.empty() || asked_.run == wanted; }

  /// An answer is wanted now.
  virtual bool waits() const = 0;
  virtual void drop_wait() = 0;
  /// What it waits for: the step, or the end of the run, that `step` describes, or ranks of its own.
  virtual std::string describe_wait(const std::string& step) const { return step; }
  /// Has anybody asked?
  virtual bool is_asking() const { return waits(); }
  virtual bool closing() const = 0;
  /// For people: "consumer "render" of process 17", "the reader group of 4 ranks of …".
  virtual std::string describe() const = 0;
  /// Its name in lists of who waits.
  virtual std::string name() const = 0;
  /// One of its processes.
  virtual const Peer& peer() const = 0;
  /// What it keeps for each of its connections, so that it counts for their users.
  virtual std::size_t kept_bytes() const { return 0; }
  /// It ends with its processes, although a forked child may keep a socket open.
  virtual void end_with_process() = 0;
  /// Every process that it has is gone, though that was not handled yet: then that is done now.
  virtual bool end_if_gone() = 0;

  /// Answers to what it waits for.
  virtual void give(const storage::StepState& step, bool rewound_before, std::uint64_t skipped_before) = 0;
  virtual void tell(wire::StepEventT event) = 0;
  virtual void refuse(const Error& error) = 0;
  /// The stream was removed or the reservation destroyed.
  virtual void stream_removed() = 0;

  // From its connections
  /// One of them opens. `found`: its stream; null if there is none yet.
  virtual void come(ReaderSession& session, Followers* found) = 0;
  /// One of them asks for the next step.
  virtual Result<void> ask(ReaderSession& session, std::uint32_t request, const wire::StepWaitT& wait) = 0;
  /// What there is to say is said now, since somebody polls, who is told why the next step is not given.
  virtual wire::StepEventT poll() = 0;
  virtual Result<void> move_cursor(ReaderSession& session, const wire::CursorMoveT& move) = 0;
  /// Its reader is gone, but steps that it gave are still held.
  virtual void left(ReaderSession& session) = 0;
  virtual void closed(ReaderSession& session) = 0;
  /// Nobody may read any more what this one asks for.
  virtual void shut_out(ReaderSession& session, const Error& error) = 0;
  /// Kept steps from `first` on, as Followers::list_steps().
  virtual Result<wire::StepsAnswerT> list(ReaderSession& session, std::uint64_t first, std::uint32_t steps_max) = 0;

  // While its Open waits
  /// The stream came into being.
  void stream_made();
  /// The writer group came that it waits for.
  void writer_came();
  /// The stream was removed while it waited for a writer.
  void awaited_stream_removed();
  /// The reservation was destroyed in which the stream would have come into being.
  void reservation_destroyed();
  /// The writer that its Open waits for was refused. It waits no longer, unless it waits for ever.
  void writer_refused(const std::string& refused_run, const std::string& why);
  virtual bool is_opening() const { return waiting_for_stream_ || waiting_in_ != nullptr; }
  /// Gives its Open up.
  void stop_opening(const Error& error);

 protected:
  /// There is no step for it yet, and why.
  wire::StepEventT not_ready(const Followers* followers) const;
  /// Takes the options, and joins the stream now or when it is there. `found`: null if there is none yet.
  void open(const wire::ReaderOpenT& asked, Followers* found, Deadline deadline);
  void leave_opening();
  /// It is to join its stream.
  virtual void enter(Followers& followers) = 0;
  virtual void open_failed(const Error& error) = 0;

  EventLoop& loop_;
  StreamsToRead& streams_;
  ReaderRegistry& registry_;
  wire::ReaderOpenT asked_;

 private:
  /// For the stream, or for the writer that is to come to this one.
  void wait_for(Followers* found);
  void give_up_waiting();
  std::string wanted_path() const { return asked_.reservation + "/" + asked_.stream; }

  bool waiting_for_stream_ = false;
  Followers* waiting_in_ = nullptr;  ///< of the stream in which it waits for a writer
  std::optional<EventLoop::TimerId> open_timer_;
};

/// A reader's wait as people see it; `wanted`: for what.
StreamWait reader_wait(const Follower& reader, StreamWait::Kind kind, std::string wanted);

}  // namespace forebay::server
