// SPDX-License-Identifier: Apache-2.0
#include "writers/writer_group.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/invariant.h"
#include "space/reservation_space.h"
#include "writers/writer_session.h"

namespace forebay::server {
namespace {

/// A rank that has lost bytes with a member gets no space there for so long.
constexpr std::int64_t avoided_ns = 15'000'000'000;

}  // namespace

WriterGroup::WriterGroup(WrittenStream& stream, std::uint64_t number, const storage::StreamState& state,
                         ReservationSpace& space, EventLoop& loop, Followers& followers)
    : stream_(stream),
      state_(state),
      space_(space),
      followers_(followers),
      forming_(loop, stream.path()),
      return_(loop),
      incarnation_(number),
      grants_(stream, state, space, incarnation_),
      durable_waits_(grants_),
      open_step_(stream, state, space, followers, incarnation_, grants_, durable_waits_),
      lag_waits_(loop, followers, stream.path()) {}

void WriterGroup::removed() {
  const Error gone{ErrorCode::not_found, "the stream was removed", "stream " + stream_.path()};
  forming_.fail_all(gone);
  fail_waiting(gone);
  open_step_.fail(gone);
  for (WriterRank& rank : incarnation_.ranks()) {
    give_back(rank);
    if (rank.session != nullptr) rank.session->broken = gone.what;
  }
  // Permits of an earlier run of this server, too.
  if (OtherMembers* const others = space_.segments().others(); others != nullptr && active())
    others->fence(state_.uuid, incarnation_.number(), std::nullopt, {});
  return_.run_deferred();
  for (WriterSession* session : std::exchange(sessions_, {})) session->stream_removed();
  incarnation_.forget_ranks();
  incarnation_.end();
}

bool WriterGroup::may_commit() const {
  return incarnation_.active() && state_.status != StreamStatus::failed && !incarnation_.first_closed();
}

WriterRank* WriterGroup::rank_of(WriterSession& session, std::uint32_t request) {
  const std::string where = fmt::format("stream {}, rank {}", stream_.path(), session.rank);
  if (!session.member) {
    session.connection().answer_failure(
        request, {ErrorCode::protocol, "this connection has not opened the stream for writing", where});
    return nullptr;
  }
  if (session.incarnation != incarnation_.number()) {
    session.connection().answer_failure(
        request, {ErrorCode::fenced,
                  fmt::format("a newer writer group (incarnation {}) has taken over from incarnation {}",
                              incarnation_.number(), session.incarnation),
                  where});
    return nullptr;
  }
  if (!session.broken.empty()) {
    session.connection().answer_failure(
        request, {ErrorCode::group_broken, session.broken + "; the open step was discarded: restart the group", where});
    return nullptr;
  }
  if (!incarnation_.is_member(session) || incarnation_.ranks()[session.rank].closed) {
    session.connection().answer_failure(request, {ErrorCode::protocol, "this rank has closed the stream", where});
    return nullptr;
  }
  return &incarnation_.ranks()[session.rank];
}

void WriterGroup::begin_step(WriterSession& session, std::uint32_t request, const wire::StepBegin& begin) {
  if (rank_of(session, request) == nullptr) return;
  if (begin.step() != state_.next_step) {
    session.connection().answer_failure(
        request, {ErrorCode::protocol, fmt::format("step {} is next", state_.next_step),
                  fmt::format("stream {}, step {}, rank {}", stream_.path(), begin.step(), session.rank)});
    return;
  }
  lag_waits_.wait(session, request, begin);
}

void WriterGroup::request_space(WriterSession& session, std::uint32_t request, const wire::SpaceRequestT& asked) {
  if (rank_of(session, request) == nullptr) return;
  if (auto checked = grants_.check(asked); !checked) {
    session.connection().answer_failure(request, checked.error());
    return;
  }
  if (rejoining()) {
    // Free space may be what an absent rank holds.
    return_.defer([this, number = session.rank, request, asked] {
      WriterSession* const asker = incarnation_.ranks()[number].session;
      if (asker != nullptr) request_space(*asker, request, asked);
    });
    return;
  }
  grants_.request(session, request, asked);
}

void WriterGroup::part(WriterSession& session, std::uint32_t request, const wire::PartT& part) {
  WriterRank* rank = rank_of(session, request);
  if (rank == nullptr) return;
  const std::string where = fmt::format("stream {}, step {}, rank {}", stream_.path(), part.step, session.rank);
  const bool waits_till_durable = incarnation_.waits_till_durable() && number_of(part) >= stream_.durable_next();
  if (waits_till_durable && state_.status == StreamStatus::failed) {
    session.connection().answer_failure(
        request,
        {ErrorCode::failed, "the stream has failed, no more steps become durable: " + state_.status_text, where});
    return;
  }
  if (part.step < state_.next_step) {
    // Sent again after a crash: that the step has committed does not say that it is durable.
    if (waits_till_durable) {
      durable_waits_.add(session, request, number_of(part), part.next_bytes);
      stream_.make_durable_soon();
      return;
    }
    grants_.answer_committed(session, request, number_of(part), part.next_bytes, grants_ahead());
    return;
  }
  if (auto added = open_step_.add(*rank, request, part); !added) {
    session.connection().answer_failure(request, {added.error().code, added.error().what, where});
    return;
  }
  if (incarnation_.has_all_parts() && has_sound_segments()) open_step_.commit();
}

bool WriterGroup::has_sound_segments() {
  std::set<std::uint32_t> segments;
  for (const WriterRank& rank : incarnation_.ranks()) {
    for (const journal::Extent& extent : rank.part->extents()) segments.insert(extent.segment());
  }
  const auto fault = space_.fault_in(segments);
  if (fault) segment_misused(*fault);
  return !fault;
}

void WriterGroup::segment_misused(const std::string& what) {
  if (active()) break_group(what + "; a process of the group wrote or changed it outside its space");
}

void WriterGroup::abort_step(WriterSession& session, std::uint32_t request, const wire::StepAbort& asked) {
  WriterRank* rank = rank_of(session, request);
  if (rank == nullptr) return;
  std::vector<std::uint16_t> members_lost;
  if (asked.members_lost() != nullptr) members_lost.assign(asked.members_lost()->begin(), asked.members_lost()->end());
  const std::size_t members = space_.segments().layout().member_segments().size();
  if (std::ranges::any_of(members_lost, [members](std::uint16_t member) { return member >= members; })) {
    session.connection().answer_failure(
        request, {ErrorCode::protocol, "the reservation has no such member", "stream " + stream_.path()});
    return;
  }
  if (asked.step() == state_.next_step) {
    open_step_.take_back(*rank);
    rank->gives_up.reset();
    // What it has sent to other members may be on its way still: it gets other space, as both sides know.
    grants_.give_back_elsewhere(*rank);
    if (!members_lost.empty()) {
      give_step_up(fmt::format("rank {} lost what it had written to another member", session.rank));
      rank->gives_up.reset();
      // This server may not have noticed yet, or may reach what the rank cannot.
      for (const std::uint16_t member : members_lost) session.avoids[member] = monotonic_ns() + avoided_ns;
    }
  }
  session.connection().answer_done(request);
}

void WriterGroup::member_lost(std::uint16_t member) {
  if (!active()) return;
  const auto lies_there = [member](const journal::MemberStorage& storage) { return storage.member() == member; };
  const bool any = std::ranges::any_of(incarnation_.ranks(), [&](const WriterRank& rank) {
    return rank.part && std::ranges::any_of(rank.part->part.members, lies_there);
  });
  if (any) give_step_up(fmt::format("member {} of the reservation, which has a part of it, is away", member));
}

void WriterGroup::give_step_up(const std::string& why) {
  // Those that have not sent their parts yet are told when they do: what the others write again is another attempt.
  for (WriterRank& rank : incarnation_.ranks())
    if (!rank.closed) rank.gives_up = why;
  open_step_.fail({ErrorCode::unavailable, why + "; abort_step, then write the step again",
                   fmt::format("stream {}, step {}", stream_.path(), state_.next_step)});
}

void WriterGroup::close(WriterSession& session, std::uint32_t request) {
  if (session.has_closed) {
    session.connection().answer_done(request);
    return;
  }
  WriterRank* rank = rank_of(session, request);
  if (rank == nullptr) return;
  const bool last = std::ranges::all_of(incarnation_.ranks(),
                                        [rank](const WriterRank& other) { return other.closed || &other == rank; });
  if (!last) {
    // A server that is started again must not wait for this rank.
    journal::RankClosedT closed;
    closed.incarnation = incarnation_.number();
    closed.rank = session.rank;
    if (auto recorded = stream_.note_rank_closed(std::move(closed)); !recorded) {
      session.connection().answer_failure(request, recorded.error());
      return;
    }
  }
  rank->closed = true;
  rank->session = nullptr;
  lag_waits_.drop(session);
  give_back(*rank);
  session.member = false;
  session.has_closed = true;
  open_step_.fail({ErrorCode::invalid_argument,
                   fmt::format("rank {} has closed the stream: no further step can be whole", session.rank),
                   "stream " + stream_.path()});
  // The group commits nothing more.
  space_.queue().changed(SpaceChange::less);
  // What is answered must survive the server's death.
  if (auto ended = end_group(); !ended) {
    session.connection().answer_failure(request, ended.error());
    return;
  }
  fail_point("server.close.before_answer");
  session.connection().answer_done(request);
}

Result<void> WriterGroup::end_group() {
  if (!incarnation_.all_closed()) return {};
  incarnation_.end();
  auto ended = stream_.group_ended(incarnation_.number(), StreamStatus::ended, "");
  form_if_whole();
  return ended;
}

void WriterGroup::lost(WriterSession& session, const std::string& reason) {
  std::erase(sessions_, &session);
  forming_.drop(session);
  durable_waits_.drop(session);
  lag_waits_.drop(session);
  if (!incarnation_.is_member(session)) return;
  WriterRank& rank = incarnation_.ranks()[session.rank];
  rank.session = nullptr;
  if (!incarnation_.active() || session.incarnation != incarnation_.number() || rank.closed) return;
  const Peer& peer = session.connection().peer();
  const std::string place = peer.remote ? "at " + peer.remote->address : fmt::format("pid {}", peer.pid);
  break_group(fmt::format("rank {} of {} ({}) was lost: {}", session.rank, incarnation_.ranks().size(), place, reason));
}

void WriterGroup::give_back(WriterRank& rank) {
  open_step_.take_back(rank);
  grants_.give_back(rank);
}

void WriterGroup::break_group(const std::string& reason) {
  incarnation_.end();
  return_.end();
  fail_point("server.group.breaking");
  const std::string where = "stream " + stream_.path();
  const Error broken{ErrorCode::group_broken, reason + "; the open step was discarded: restart the group", where};
  space_.queue().end_waits(stream_, broken);
  lag_waits_.fail_all(broken);
  for (WriterRank& rank : incarnation_.ranks()) {
    const std::optional<std::uint32_t> request = rank.part ? std::optional(rank.part->request) : std::nullopt;
    give_back(rank);
    if (rank.session == nullptr) continue;
    rank.session->broken = reason;
    if (request) rank.session->connection().answer_failure(*request, broken);
  }
  return_.run_deferred();
  stream_.begin_grace(incarnation_.grace_ms());
  (void)stream_.group_ended(incarnation_.number(), StreamStatus::interrupted, reason);
  form_if_whole();
}

void WriterGroup::steps_lost(std::uint64_t first, const std::string& why) {
  // Ranks that are to come back after a restart of this server may wait for them, too.
  const bool breaks = active() && (waits_for_durable() || incarnation_.waits_till_durable());
  // Nor do they count as durable when steps beyond them are.
  durable_waits_.fail_from(first, {ErrorCode::group_broken, why + "; restart the group", "stream " + stream_.path()});
  if (breaks) break_group(why);
}

void WriterGroup::fail_waiting(const Error& error) {
  durable_waits_.fail_all(error);
  space_.queue().end_waits(stream_, error);
  lag_waits_.fail_all(error);
  // A rank that comes later with its part of the step is refused: it will not be whole.
  if (incarnation_.waits_till_durable()) open_step_.fail(error);
}

std::size_t WriterGroup::check() const {
  const auto about = [this](const char* what) {
    return fmt::format("stream {}, incarnation {}: {}", stream_.path(), incarnation_.number(), what);
  };
  if (!incarnation_.active()) {
    invariant(incarnation_.granted_bytes() == 0,
              [&] { return about("it has ended, and space is granted to it still"); });
    return 1;
  }
  invariant(state_.group && state_.group->incarnation == incarnation_.number(),
            [&] { return about("it writes, and is not the journal's group"); });
  invariant(incarnation_.ranks().size() == state_.group->ranks,
            [&] { return about("it has other ranks than the journal's"); });
  for (std::size_t number = 0; number < incarnation_.ranks().size(); ++number) {
    const WriterRank& rank = incarnation_.ranks()[number];
    const auto of = [&](const char* what) { return fmt::format("{}, rank {}", about(what), number); };
    invariant(!rank.closed || (rank.session == nullptr && rank.granted_bytes() == 0),
              [&] { return of("has closed and holds on"); });
    invariant(rank.session == nullptr || rank.session->rank == number,
              [&] { return of("is another rank's connection"); });
    invariant(!rank.part || rank.session != nullptr, [&] { return of("has a part and nobody to answer"); });
  }
  return 1 + incarnation_.ranks().size();
}

}  // namespace forebay::server
