// SPDX-License-Identifier: Apache-2.0
#include "writers/writer_group.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "space/reservation_space.h"
#include "writers/writer_session.h"

namespace forebay::server {

WriterGroup::WriterGroup(WrittenStream& stream, std::uint64_t number, const storage::StreamState& state,
                         ReservationSpace& space, EventLoop& loop, Followers& followers)
    : stream_(stream),
      stream_number_(number),
      state_(state),
      space_(space),
      loop_(loop),
      followers_(followers),
      forming_(loop, stream.path()) {}

WriterGroup::~WriterGroup() {
  if (rejoin_timer_) loop_.cancel(*rejoin_timer_);
}

void WriterGroup::removed() {
  const Error gone{ErrorCode::not_found, "the stream was removed", "stream " + stream_.path()};
  forming_.fail_all(gone);
  fail_waiting(gone);
  for (Rank& rank : ranks_) {
    if (rank.part && rank.session != nullptr) rank.session->connection().answer_failure(rank.part->request, gone);
    give_back(rank);
    if (rank.session != nullptr) rank.session->broken = gone.what;
  }
  for (auto& task : std::exchange(deferred_, {})) task();
  for (WriterSession* session : std::exchange(sessions_, {})) session->stream_removed();
  ranks_.clear();
  active_ = false;
}

bool WriterGroup::is_member(const WriterSession& session) const noexcept {
  return session.rank < ranks_.size() && ranks_[session.rank].session == &session;
}

bool WriterGroup::owns(const Owner& owner) const noexcept {
  return active_ && owner.stream == stream_number_ && owner.incarnation == incarnation_;
}

bool WriterGroup::step_open() const {
  return active_ && std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.part.has_value(); });
}

bool WriterGroup::is_complete() const {
  return active_ && !rejoining_ &&
         std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.session != nullptr || rank.closed; });
}

bool WriterGroup::may_commit() const {
  return active_ && state_.status != StreamStatus::failed &&
         std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.closed; });
}

WriterGroup::Rank* WriterGroup::rank_of(WriterSession& session, std::uint32_t request) {
  const std::string where = fmt::format("stream {}, rank {}", stream_.path(), session.rank);
  if (!session.member) {
    session.connection().answer_failure(
        request, {ErrorCode::protocol, "this connection has not opened the stream for writing", where});
    return nullptr;
  }
  if (session.incarnation != incarnation_) {
    session.connection().answer_failure(
        request, {ErrorCode::fenced,
                  fmt::format("a newer writer group (incarnation {}) has taken over from incarnation {}", incarnation_,
                              session.incarnation),
                  where});
    return nullptr;
  }
  if (!session.broken.empty()) {
    session.connection().answer_failure(
        request,
        {ErrorCode::group_broken, session.broken + "; the open step does not exist: restart the group", where});
    return nullptr;
  }
  if (!is_member(session) || ranks_[session.rank].closed) {
    session.connection().answer_failure(request, {ErrorCode::protocol, "this rank has closed the stream", where});
    return nullptr;
  }
  return &ranks_[session.rank];
}

void WriterGroup::part(WriterSession& session, std::uint32_t request, const wire::PartT& part) {
  Rank* rank = rank_of(session, request);
  if (rank == nullptr) return;
  const storage::StreamState& state = state_;
  const std::string where = fmt::format("stream {}, step {}, rank {}", stream_.path(), part.step, session.rank);
  const bool durable = waits_till_durable();
  if (durable && state.status == StreamStatus::failed && part.step >= stream_.durable_next()) {
    session.connection().answer_failure(
        request,
        {ErrorCode::failed, "the stream has failed, no step becomes durable any more: " + state.status_text, where});
    return;
  }
  if (part.step < state.next_step) {
    // Sent again after a crash: that the step has committed does not say that it is durable.
    if (durable && part.step >= stream_.durable_next()) {
      durable_waiting_.push_back({&session, request, part.step, part.next_bytes});
      stream_.make_durable_soon();
      return;
    }
    answer_committed(session, request, part.step, part.next_bytes);
    return;
  }
  if (part.step != state.next_step || rank->part) {
    session.connection().answer_failure(request,
                                        {ErrorCode::protocol, fmt::format("step {} is next", state.next_step), where});
    return;
  }
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    if (!ranks_[number].closed) continue;
    session.connection().answer_failure(
        request, {ErrorCode::invalid_argument,
                  fmt::format("rank {} has closed the stream: no step can be whole any more", number), where});
    return;
  }
  auto checked = rank->granted.take(space_.map(), space_.segments().layout(), session.rank, part);
  if (!checked) {
    session.connection().answer_failure(request, {checked.error().code, checked.error().what, where});
    return;
  }
  checked->storage_incarnation = stream_.storage_incarnation();
  fail_point("server.part.received");
  rank->part = PendingPart{request, part.next_bytes, {}, std::move(*checked)};
  if (part.holder != 0) {
    // Before the commit, so that a server that is killed after it finds the pin in its table.
    const WriterPin pin{part.holder, session.connection().peer().pid, {state.epoch, part.step}};
    if (auto pinned = followers_.pin_for_writer(pin.session, pin.process, pin.key); !pinned) {
      take_back_part(*rank);
      session.connection().answer_failure(request, {pinned.error().code, pinned.error().what, where});
      return;
    }
    rank->part->pin = pin;
    fail_point("server.part.pinned");
  }
  commit_if_whole();
}

void WriterGroup::commit_if_whole() {
  if (!std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.part.has_value(); })) return;
  const storage::StreamState& state = state_;
  journal::StepCommittedT step;
  step.step = state.next_step;
  step.epoch = state.epoch;
  step.incarnation = incarnation_;
  step.time_ns = wall_clock_ns();
  step.precious = state.retention.precious_every != 0 && step.step % state.retention.precious_every == 0;
  committing_.clear();
  for (Rank& rank : ranks_) {
    committing_.push_back({rank.part->request, rank.part->next_bytes, rank.part->pin, rank.part->part.extents});
    for (const auto& extent : rank.part->part.extents) step.size_bytes += extent.length();
    // Once more: the holder may have come back on another connection, when there was no step to hold.
    if (const auto& pin = rank.part->pin) (void)followers_.pin_for_writer(pin->session, pin->process, pin->key);
    step.parts.push_back(std::make_unique<journal::PartT>(std::move(rank.part->part)));
    rank.part.reset();
  }
  const std::uint64_t number = step.step;
  step_order_.reset();
  if (waits_till_durable()) {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
      durable_waiting_.push_back(
          {ranks_[rank].session, committing_[rank].request, number, committing_[rank].next_bytes});
  }
  if (auto committed = stream_.commit(std::move(step)); !committed) undo_commit(number, committed.error());
}

void WriterGroup::answer_commit() {
  fail_point("server.commit.before_answer");
  if (waits_till_durable()) return;
  const std::uint64_t step = state_.next_step - 1;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].session != nullptr)
      answer_committed(*ranks_[rank].session, committing_[rank].request, step, committing_[rank].next_bytes);
  }
}

void WriterGroup::undo_commit(std::uint64_t step, const Error& error) {
  std::erase_if(durable_waiting_, [step](const DurableWaiter& waiter) { return waiter.step == step; });
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].granted.add(committing_[rank].extents);
    unpin(committing_[rank].pin);
    if (ranks_[rank].session != nullptr)
      ranks_[rank].session->connection().answer_failure(committing_[rank].request, error);
  }
}

void WriterGroup::answer_committed(WriterSession& session, std::uint32_t request, std::uint64_t step,
                                   std::uint64_t next_bytes) {
  wire::CommittedT committed;
  committed.step = step;
  std::vector<Descriptor> descriptors;
  if (active_ && !rejoining_ && is_member(session)) {
    Rank& rank = ranks_[session.rank];
    const std::uint64_t held = rank.granted.total();
    if (next_bytes > held) {
      const auto extents = space_.allocate_ahead(stream_, {stream_number_, incarnation_, session.rank},
                                                 std::min(next_bytes - held, grant_bytes_max()));
      rank.granted.add(extents);
      describe_grant(session, extents, committed.extents, committed.segments, descriptors);
    }
  }
  session.connection().answer(protocol::MessageType::committed, request, committed, std::move(descriptors));
}

void WriterGroup::durable_moved() {
  const std::uint64_t durable_next = stream_.durable_next();
  auto waiting = std::exchange(durable_waiting_, {});
  for (const DurableWaiter& waiter : waiting) {
    if (waiter.step < durable_next) {
      answer_committed(*waiter.session, waiter.request, waiter.step, waiter.next_bytes);
    } else {
      durable_waiting_.push_back(waiter);
    }
  }
}

void WriterGroup::abort_step(WriterSession& session, std::uint32_t request, std::uint64_t step) {
  Rank* rank = rank_of(session, request);
  if (rank == nullptr) return;
  if (step == state_.next_step) take_back_part(*rank);
  session.connection().answer_done(request);
}

void WriterGroup::close(WriterSession& session, std::uint32_t request) {
  if (session.has_closed) {
    session.connection().answer_done(request);
    return;
  }
  Rank* rank = rank_of(session, request);
  if (rank == nullptr) return;
  const bool last = std::ranges::all_of(ranks_, [rank](const Rank& other) { return other.closed || &other == rank; });
  if (!last) {
    // A server that is started again must not wait for this rank.
    journal::RankClosedT closed;
    closed.incarnation = incarnation_;
    closed.rank = session.rank;
    if (auto recorded = stream_.note_rank_closed(std::move(closed)); !recorded) {
      session.connection().answer_failure(request, recorded.error());
      return;
    }
  }
  rank->closed = true;
  rank->session = nullptr;
  give_back(*rank);
  session.member = false;
  session.has_closed = true;
  for (Rank& other : ranks_) {
    if (!other.part || other.session == nullptr) continue;
    other.session->connection().answer_failure(
        other.part->request, {ErrorCode::invalid_argument,
                              fmt::format("rank {} has closed the stream: no step can be whole any more", session.rank),
                              "stream " + stream_.path()});
    take_back_part(other);
  }
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
  if (!std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.closed; })) return {};
  active_ = false;
  auto ended = stream_.group_ended(incarnation_, StreamStatus::ended, "");
  form_if_whole();
  return ended;
}

void WriterGroup::lost(WriterSession& session, const std::string& reason) {
  std::erase(sessions_, &session);
  forming_.drop(session);
  std::erase_if(durable_waiting_, [&](const DurableWaiter& waiter) { return waiter.session == &session; });
  if (!is_member(session)) return;
  Rank& rank = ranks_[session.rank];
  rank.session = nullptr;
  if (!active_ || session.incarnation != incarnation_ || rank.closed) return;
  break_group(fmt::format("rank {} of {} (pid {}) was lost: {}", session.rank, ranks_.size(),
                          session.connection().peer().pid, reason));
}

void WriterGroup::break_group(const std::string& reason) {
  active_ = false;
  rejoining_ = false;
  if (rejoin_timer_) loop_.cancel(*rejoin_timer_);
  rejoin_timer_.reset();
  fail_point("server.group.breaking");
  const std::string where = "stream " + stream_.path();
  const Error broken{ErrorCode::group_broken, reason + "; the open step does not exist: restart the group", where};
  space_.queue().end_waits(stream_, broken);
  for (Rank& rank : ranks_) {
    const std::optional<std::uint32_t> request = rank.part ? std::optional(rank.part->request) : std::nullopt;
    give_back(rank);
    if (rank.session == nullptr) continue;
    rank.session->broken = reason;
    if (request) rank.session->connection().answer_failure(*request, broken);
  }
  for (auto& task : std::exchange(deferred_, {})) task();
  stream_.begin_grace(options_.grace_ms);
  (void)stream_.group_ended(incarnation_, StreamStatus::interrupted, reason);
  form_if_whole();
}

void WriterGroup::fail_waiting(const Error& error) {
  auto waiting = std::exchange(durable_waiting_, {});
  for (const DurableWaiter& waiter : waiting) waiter.session->connection().answer_failure(waiter.request, error);
  space_.queue().end_waits(stream_, error);
  if (!waits_till_durable()) return;
  // A rank that comes later with its part of the step is refused: it will not be whole.
  for (Rank& rank : ranks_) {
    if (!rank.part) continue;
    if (rank.session != nullptr) rank.session->connection().answer_failure(rank.part->request, error);
    take_back_part(rank);
  }
}

void WriterGroup::fail_withdrawn_waiters() {
  const Error gone{ErrorCode::fenced, "a newer writer group has withdrawn the step before it was durable",
                   "stream " + stream_.path()};
  const std::uint64_t first = state_.next_step;
  for (const DurableWaiter& waiter : durable_waiting_) {
    if (waiter.step >= first) waiter.session->connection().answer_failure(waiter.request, gone);
  }
  std::erase_if(durable_waiting_, [first](const DurableWaiter& waiter) { return waiter.step >= first; });
}

}  // namespace forebay::server
