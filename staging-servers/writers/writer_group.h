// SPDX-License-Identifier: Apache-2.0
// The ranks that write a stream together: forming, fencing of older incarnations, granted space, parts and their
// commit, the loss of a rank, and the return of ranks after a restart of the server.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/storage/journal_generated.h>
#include <forebay/writer.h>

#include "loop/event_loop.h"
#include "readers/followers.h"
#include "space/space_map.h"
#include "writers/granted_space.h"
#include "writers/group_forming.h"
#include "writers/written_stream.h"

namespace forebay::server {

class ReservationSpace;
class WriterSession;

class WriterGroup {
 public:
  /// All of these outlive it. `number`: the server's for the stream.
  WriterGroup(WrittenStream& stream, std::uint64_t number, const storage::StreamState& state, ReservationSpace& space,
              EventLoop& loop, Followers& followers);
  ~WriterGroup();

  ReservationSpace& space() noexcept { return space_; }

  /// A connection that is about to ask: it is told when the stream is removed, and must say when it ends (lost).
  void attach(WriterSession& session) { sessions_.push_back(&session); }
  /// A rank that asks to open. Answered when the group is whole, or with a failure.
  void open(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& wish);
  /// A rank that comes back after a restart of the server.
  void rejoin(WriterSession& session, std::uint32_t request, const wire::WriterRejoinT& wish);
  void request_space(WriterSession& session, std::uint32_t request, std::uint64_t step, std::uint64_t bytes,
                     std::uint64_t ahead_bytes);
  void part(WriterSession& session, std::uint32_t request, const wire::PartT& part);
  /// The step of the parts at hand has committed: tells the ranks, unless they wait for it to be durable.
  void answer_commit();
  void abort_step(WriterSession& session, std::uint32_t request, std::uint64_t step);
  void close(WriterSession& session, std::uint32_t request);
  /// The stream is no more.
  void removed();
  /// The connection or the process of a rank ended.
  void lost(WriterSession& session, const std::string& reason);

  /// After recovery of a stream that was live: its ranks have `grace_ms` to come back.
  void expect_rejoin(std::int64_t grace_ms);
  /// The stream became failed, or is no more: whoever waits for what will not come is told.
  void fail_waiting(const Error& error);
  /// Durable watermark moved.
  void durable_moved();
  /// Readers came: a rendezvous may be complete.
  void readers_changed();

  bool active() const noexcept { return active_; }
  bool rejoining() const noexcept { return rejoining_; }
  /// No rank has closed, and the stream has not failed.
  bool may_commit() const;
  bool step_open() const;
  bool waits_for_durable() const noexcept { return !durable_waiting_.empty(); }
  std::uint32_t incarnation() const noexcept { return incarnation_; }
  /// Space granted and not yet part of a step.
  std::uint64_t granted_bytes() const;
  /// The same, any of it in this segment.
  bool holds_space_in(std::uint32_t segment) const;
  /// Every rank is here or has closed, so that all space that one of them may write in is known as granted.
  bool is_complete() const;
  /// True for a segment that a living incarnation writes.
  bool owns(const Owner& owner) const noexcept;

 private:
  /// A pin on the step at hand, for who holds memory that was allocated in it.
  struct WriterPin {
    std::uint64_t session = 0;
    pid_t process = 0;
    StepKey key;
  };
  struct PendingPart {
    std::uint32_t request = 0;
    std::uint64_t next_bytes = 0;
    std::optional<WriterPin> pin;
    journal::PartT part;
  };
  struct Rank {
    WriterSession* session = nullptr;
    GrantedSpace granted;
    std::optional<PendingPart> part;
    bool closed = false;
  };
  /// A rank's part in the step that is being committed: what it is to be told, and given back if there is no step.
  struct CommittingPart {
    std::uint32_t request = 0;
    std::uint64_t next_bytes = 0;
    std::optional<WriterPin> pin;
    std::vector<journal::Extent> extents;
  };
  struct DurableWaiter {
    WriterSession* session = nullptr;
    std::uint32_t request = 0;
    std::uint64_t step = 0;
    std::uint64_t next_bytes = 0;
  };

  // writer_group_forming.cpp
  void notice_lost_ranks();
  std::optional<Error> refusal(const wire::WriterOpenT& wish) const;
  void form_if_whole();
  Result<void> begin_incarnation(const wire::WriterOpenT& wish);
  /// A rank has waited for the others, for readers or for an older group as long as it wants to.
  void forming_timed_out(const wire::WriterOpenT& wish);
  /// The session becomes this rank of the group that has formed, and is told.
  void join(std::uint32_t number, WriterSession& session, std::uint32_t request);

  // writer_group.cpp
  Rank* rank_of(WriterSession& session, std::uint32_t request);
  void commit_if_whole();
  /// The step could not be written down: the ranks have again what they had put into it.
  void undo_commit(std::uint64_t step, const Error& error);
  bool waits_till_durable() const noexcept {
    return static_cast<Durability>(options_.durability) == Durability::durable;
  }
  void answer_committed(WriterSession& session, std::uint32_t request, std::uint64_t step, std::uint64_t next_bytes);
  /// Answers those that wait for a step to become durable which has been withdrawn.
  void fail_withdrawn_waiters();
  bool is_member(const WriterSession& session) const noexcept;
  /// Descriptors of as much fit into one answer, also where it lies in pieces.
  std::uint64_t grant_bytes_max() const;
  void take_back_part(Rank& rank);
  void unpin(const std::optional<WriterPin>& pin);
  void give_back(Rank& rank);
  void break_group(const std::string& reason);
  void finish_rejoin_if_whole();
  /// After a restart: a rank that the group had formed with, but that was not told so, has sent its Open again.
  bool take_place(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& wish);
  /// Once all ranks have closed. The error of an end that is not in the journal.
  Result<void> end_group();
  void describe_grant(WriterSession& session, const std::vector<Extent>& extents,
                      std::vector<wire::Extent>& wire_extents, std::vector<std::uint32_t>& segments,
                      std::vector<Descriptor>& descriptors);

  WrittenStream& stream_;
  const std::uint64_t stream_number_;
  const storage::StreamState& state_;
  ReservationSpace& space_;
  EventLoop& loop_;
  Followers& followers_;
  std::vector<WriterSession*> sessions_;  ///< all connections that asked, whatever became of it
  GroupForming forming_;
  bool active_ = false;  ///< a group writes, or is expected back
  bool rejoining_ = false;
  std::uint32_t incarnation_ = 0;
  wire::WriterOpenT options_;
  std::vector<Rank> ranks_;
  std::vector<CommittingPart> committing_;  ///< by rank, while the step commits
  std::vector<DurableWaiter> durable_waiting_;
  std::optional<std::uint64_t> step_order_;      ///< place of the step at hand in the queue for space
  std::vector<std::function<void()>> deferred_;  ///< requests that wait until all ranks are back
  std::optional<EventLoop::TimerId> rejoin_timer_;
};

}  // namespace forebay::server
