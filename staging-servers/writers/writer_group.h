// SPDX-License-Identifier: Apache-2.0
// The ranks that write a stream together: how they come together, fence older incarnations, lose one of theirs, come
// back after a restart of the server, and end. The step at hand and its space are classes of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>

#include "loop/event_loop.h"
#include "readers/followers.h"
#include "space/space_map.h"
#include "writers/durable_waits.h"
#include "writers/group_forming.h"
#include "writers/group_return.h"
#include "writers/incarnation.h"
#include "writers/lag_waits.h"
#include "writers/open_step.h"
#include "writers/space_grants.h"
#include "writers/written_stream.h"

namespace forebay::server {

class ReservationSpace;
class WriterSession;

class WriterGroup {
 public:
  /// All of these outlive it. `number`: the server's for the stream.
  WriterGroup(WrittenStream& stream, std::uint64_t number, const storage::StreamState& state, ReservationSpace& space,
              EventLoop& loop, Followers& followers);

  ReservationSpace& space() noexcept { return space_; }

  /// A connection that is about to ask: it is told when the stream is removed, and must say when it ends (lost).
  void attach(WriterSession& session) { sessions_.push_back(&session); }
  /// A rank that asks to open. Answered when the group is whole, or with a failure.
  void open(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& asked);
  /// A rank that comes back after a restart of the server.
  void rejoin(WriterSession& session, std::uint32_t request, const wire::WriterRejoinT& asked);
  void begin_step(WriterSession& session, std::uint32_t request, const wire::StepBegin& begin);
  void request_space(WriterSession& session, std::uint32_t request, const wire::SpaceRequestT& asked);
  /// SpaceGrants::permit().
  void permit(WriterSession& session, const std::set<std::uint32_t>& segments,
              std::vector<std::unique_ptr<wire::MemberPermitT>>& permits) {
    grants_.permit(session, segments, permits);
  }
  void part(WriterSession& session, std::uint32_t request, const wire::PartT& part);
  /// The step of the parts at hand has committed: tells the ranks, unless they wait for it to be durable.
  void answer_commit() { open_step_.answer_commit(grants_ahead()); }
  void abort_step(WriterSession& session, std::uint32_t request, const wire::StepAbort& asked);
  /// A member of the reservation is away: a step with bytes there is given up for all ranks. The group lives.
  void member_lost(std::uint16_t member);
  void close(WriterSession& session, std::uint32_t request);
  /// A program reports that it was refused before it could ask to open.
  void report_refused(const wire::WriterRefusedT& report, const std::string& why);
  /// The stream is no more.
  void removed();
  /// The connection or the process of a rank ended.
  void lost(WriterSession& session, const std::string& reason);

  /// After recovery of a stream that was live: its ranks have `grace_ms` to come back.
  void expect_rejoin(std::int64_t grace_ms);
  /// The stream became failed, or is no more: whoever waits for what will not come is told.
  void fail_waiting(const Error& error);
  /// Committed steps from `first` on are gone that were not durable: who waits for them is told.
  void steps_lost(std::uint64_t first, const std::string& why);
  /// Durable watermark moved.
  void durable_moved() { durable_waits_.moved(stream_.durable_next(), grants_ahead()); }
  /// Readers came: a rendezvous may be complete.
  void readers_changed();
  /// Readers have got on or have gone: ranks may wait until none is too far behind.
  void readers_moved() { lag_waits_.readers_moved(); }

  bool active() const noexcept { return incarnation_.active(); }
  /// A group writes, and none of its ranks is known to be gone.
  bool lives();
  /// A group writes, is expected back, or is forming.
  bool is_expected() const noexcept { return active() || !forming_.is_empty(); }
  /// What their nodes know the ranks by that are expected back after a restart of the server. Nothing if one of them is
  /// not known, as a rank of the server's own node.
  std::vector<std::string> missing_processes() const;
  /// Ranks are expected back after a restart of the server.
  bool rejoining() const noexcept { return return_.is_awaited(); }
  /// No rank has closed, and the stream has not failed.
  bool may_commit() const;
  bool step_open() const { return incarnation_.active() && incarnation_.has_any_part(); }
  bool waits_for_durable() const noexcept { return !durable_waits_.is_empty(); }
  std::uint32_t incarnation() const noexcept { return incarnation_.number(); }
  /// Space granted and not yet part of a step.
  std::uint64_t granted_bytes() const { return incarnation_.granted_bytes(); }
  /// Whose processes the ranks are that are here.
  std::set<uid_t> users() const { return incarnation_.users(); }
  /// A process of the group has done what no writer may with a segment: the group ends.
  void segment_misused(const std::string& what);
  /// The same, any of it in this segment.
  bool holds_space_in(std::uint32_t segment) const { return incarnation_.holds_space_in(segment); }
  /// Every rank is here or has closed, so that all space that one of them may write in is known as granted.
  bool is_complete() const { return incarnation_.active() && !rejoining() && incarnation_.is_complete(); }
  /// Appends the space that is granted and not yet part of a step.
  void list_granted(std::vector<Extent>& extents) const { incarnation_.list_granted(extents); }
  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;
  /// Appends the ranks that wait now.
  void describe_waits(std::vector<StreamWait>& waits) const;
  /// True for a segment that a living incarnation writes.
  bool owns(const Owner& owner) const noexcept { return incarnation_.owns(owner); }

 private:
  // writer_group_forming.cpp
  void notice_lost_ranks();
  std::optional<Error> refusal(const wire::WriterOpenT& asked) const;
  /// The program calls the stream by another name than the one that it was written under.
  std::optional<Error> other_name(const wire::WriterOpenT& asked) const;
  void form_if_whole();
  Result<void> begin_incarnation(const wire::WriterOpenT& asked);
  /// A rank has waited for the others, for readers or for an older group as long as it wants to.
  void forming_timed_out(const wire::WriterOpenT& asked);
  /// What the ranks that are forming wait for, for people.
  std::string describe_forming() const;
  /// All that are forming are answered with this error, and readers that wait for them are told.
  void refuse_forming(std::string run, const Error& error);
  /// The session becomes this rank of the group that has formed, and is told.
  void join(std::uint32_t number, WriterSession& session, std::uint32_t request);

  // writer_group_rejoin.cpp
  void finish_rejoin_if_whole();
  /// All ranks are back: who may have their segments open for writing is known again.
  void learn_holders();
  /// After a restart: a rank that the group had formed with, but that was not told so, has sent its Open again.
  bool take_place(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& asked);
  /// Nobody waits for a group whose processes have all ended, as new ranks say which run on the nodes of the old ones.
  void give_up_return_if_gone(const std::vector<std::string>& gone);
  /// What the rank says that it holds is granted to it again.
  void restore_grants(WriterRank& rank, const std::vector<wire::Extent>& held);

  // writer_group.cpp
  /// Null, and the session is told why, if it is no rank that may go on.
  WriterRank* rank_of(WriterSession& session, std::uint32_t request);
  /// May an answer bring space for the next step?
  bool grants_ahead() const noexcept { return incarnation_.active() && !rejoining(); }
  void give_back(WriterRank& rank);
  /// False if a segment that the step at hand lies in is not as it was granted; then the group has ended.
  bool has_sound_segments();
  void break_group(const std::string& reason);
  /// All ranks give their parts of the open step up, and write it again.
  void give_step_up(const std::string& why);
  /// Once all ranks have closed. The error of an end that is not in the journal.
  Result<void> end_group();

  WrittenStream& stream_;
  const storage::StreamState& state_;
  ReservationSpace& space_;
  Followers& followers_;
  std::vector<WriterSession*> sessions_;  ///< all connections that asked, whatever became of it
  GroupForming forming_;
  GroupReturn return_;
  Incarnation incarnation_;
  SpaceGrants grants_;
  DurableWaits durable_waits_;
  OpenStep open_step_;
  LagWaits lag_waits_;
  std::set<std::string> gone_;  ///< processes that ended while the server was away, as new ranks say
  std::string interruption_;    ///< why the group before this incarnation was interrupted; empty: it was not
};

}  // namespace forebay::server
