// SPDX-License-Identifier: Apache-2.0
// How a writer group comes into being: ranks gather until all N are there, then one incarnation begins and all older
// ones are fenced.
#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "space/reservation_space.h"
#include "storage/record_check.h"
#include "writers/writer_group.h"
#include "writers/writer_session.h"

namespace forebay::server {
namespace {

constexpr std::size_t group_bytes_max = 4096;

std::string list_ranks(const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t listed_max = 16;
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < listed_max; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > listed_max) text += fmt::format(" and {} more", ranks.size() - listed_max);
  return text;
}

}  // namespace

std::optional<Error> WriterGroup::refusal(const wire::WriterOpenT& wish) const {
  const std::string where = "stream " + stream_.path();
  if (wish.ranks == 0 || wish.ranks > storage::ranks_max || wish.rank >= wish.ranks) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("rank {} of {} is impossible (number of ranks from {})", wish.rank, wish.ranks, wish.ranks_source),
        where};
  }
  if (wish.group.size() > group_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a group id has at most {} bytes, this one {}", group_bytes_max, wish.group.size()),
                 where};
  }
  if (active_ && !rejoining_) {
    std::string pids;
    for (const Rank& rank : ranks_) {
      if (rank.session != nullptr)
        pids += fmt::format("{}{}", pids.empty() ? "" : ", ", rank.session->connection().peer().pid);
    }
    return Error{ErrorCode::busy,
                 fmt::format("another writer group writes this stream (incarnation {}, {} ranks, pids {}); wait for it "
                             "to close, or end it",
                             incarnation_, ranks_.size(), pids),
                 where};
  }
  if (candidates_.empty()) return std::nullopt;
  const wire::WriterOpenT& first = candidates_.begin()->second.wish;
  if (first.group != wish.group) {
    return Error{ErrorCode::busy,
                 fmt::format("another writer group (\"{}\") is forming for this stream; this rank is of group \"{}\"",
                             first.group, wish.group),
                 where};
  }
  return std::nullopt;
}

void WriterGroup::notice_lost_ranks() {
  for (std::size_t number = 0; active_ && number < ranks_.size(); ++number) {
    WriterSession* session = ranks_[number].session;
    if (session == nullptr || ranks_[number].closed || !session->connection().peer_gone()) continue;
    lost(*session, "the connection ended");
    // Its own end comes later, and perhaps after that of the stream.
    session->stream_removed();
  }
}

void WriterGroup::open(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& wish) {
  // A restart may come before the end of the ranks that it follows has been handled.
  notice_lost_ranks();
  if (take_place(session, request, wish)) return;
  if (const auto error = refusal(wish)) {
    session.connection().answer_failure(request, *error);
    return;
  }
  const std::string where = "stream " + stream_.path();
  if (!candidates_.empty()) {
    const wire::WriterOpenT& first = candidates_.begin()->second.wish;
    std::optional<std::string> conflict;
    if (first.ranks != wish.ranks) {
      conflict = fmt::format("ranks do not agree on their number: rank {} says {} (from {}), rank {} says {} (from {})",
                             first.rank, first.ranks, first.ranks_source, wish.rank, wish.ranks, wish.ranks_source);
    } else if (first.mode != wish.mode) {
      conflict = fmt::format("ranks do not agree on the mode: rank {} opens to {}, rank {} to {}", first.rank,
                             first.mode == 1 ? "write" : "append", wish.rank, wish.mode == 1 ? "write" : "append");
    } else if (candidates_.contains(wish.rank)) {
      conflict = fmt::format("two processes are rank {} of {} (pids {} and {}); ranks come from {}", wish.rank,
                             wish.ranks, candidates_.at(wish.rank).session->connection().peer().pid,
                             session.connection().peer().pid, wish.ranks_source);
    }
    if (conflict) {
      const Error error{ErrorCode::invalid_argument, *conflict, where};
      session.connection().answer_failure(request, error);
      fail_candidates(error);
      return;
    }
  }
  Candidate candidate;
  candidate.session = &session;
  candidate.request = request;
  candidate.wish = wish;
  session.rank = wish.rank;
  const Deadline deadline = Deadline::after_ms(wish.open_timeout_ms);
  if (!deadline.is_never()) {
    candidate.has_timer = true;
    candidate.timer = loop_.at(deadline.at_ns(), [this, rank = wish.rank] { candidate_timed_out(rank); });
  }
  candidates_.emplace(wish.rank, std::move(candidate));
  form_if_whole();
}

void WriterGroup::fail_candidates(const Error& error) {
  auto candidates = std::exchange(candidates_, {});
  for (auto& [rank, candidate] : candidates) {
    if (candidate.has_timer) loop_.cancel(candidate.timer);
    candidate.session->connection().answer_failure(candidate.request, error);
  }
}

void WriterGroup::candidate_timed_out(std::uint32_t rank) {
  const auto found = candidates_.find(rank);
  if (found == candidates_.end()) return;
  found->second.has_timer = false;
  const wire::WriterOpenT& wish = found->second.wish;
  std::vector<std::uint32_t> missing;
  for (std::uint32_t number = 0; number < wish.ranks; ++number) {
    if (!candidates_.contains(number)) missing.push_back(number);
  }
  std::string text;
  if (!missing.empty()) {
    text = fmt::format(
        "rank {} of {} did not open the stream within {} s; the number of ranks came from {}: set Ranks (or "
        "FOREBAY_RANKS) if it is wrong",
        list_ranks(missing), wish.ranks, static_cast<double>(wish.open_timeout_ms) / 1000, wish.ranks_source);
  } else if (rejoining_) {
    text = "the group that wrote this stream before the server was restarted may still come back";
  } else {
    text = fmt::format("{} readers were waited for (RendezvousReaderCount), {} came", wish.rendezvous_readers,
                       followers_.follower_count());
  }
  fail_candidates({ErrorCode::timeout, text, "stream " + stream_.path()});
}

void WriterGroup::drop_candidate(const WriterSession& session) {
  for (auto candidate = candidates_.begin(); candidate != candidates_.end(); ++candidate) {
    if (candidate->second.session != &session) continue;
    if (candidate->second.has_timer) loop_.cancel(candidate->second.timer);
    candidates_.erase(candidate);
    return;
  }
}

void WriterGroup::readers_changed() {
  if (!candidates_.empty()) form_if_whole();
}

void WriterGroup::form_if_whole() {
  if (active_ || candidates_.empty()) return;
  // Rank 0's wishes hold for all.
  const wire::WriterOpenT wish = candidates_.begin()->second.wish;
  if (candidates_.size() < wish.ranks || followers_.follower_count() < wish.rendezvous_readers) return;
  if (auto begun = begin_incarnation(wish); !begun) {
    fail_candidates(begun.error());
    return;
  }
  fail_withdrawn_waiters();
  auto candidates = std::exchange(candidates_, {});
  ranks_.clear();
  ranks_.resize(wish.ranks);
  for (auto& [number, candidate] : candidates) {
    if (candidate.has_timer) loop_.cancel(candidate.timer);
    join(number, *candidate.session, candidate.request);
  }
  followers_.status_changed();
}

void WriterGroup::join(std::uint32_t number, WriterSession& session, std::uint32_t request) {
  ranks_[number].session = &session;
  session.member = true;
  session.incarnation = incarnation_;
  wire::WriterOpenedT opened;
  opened.uuid = state_.uuid;
  opened.epoch = state_.epoch;
  opened.incarnation = incarnation_;
  opened.next_step = state_.next_step;
  opened.segment_bytes = space_.segments().record().segment_bytes;
  session.connection().answer(protocol::MessageType::writer_opened, request, opened);
}

Result<void> WriterGroup::begin_incarnation(const wire::WriterOpenT& wish) {
  const storage::StreamState& state = state_;
  const std::string where = "stream " + stream_.path();
  if (state.status == StreamStatus::failed) {
    return fail(ErrorCode::failed, "the stream has failed and takes no more steps: " + state.status_text, where);
  }
  journal::GroupFormedT formed;
  if (!wish.retention.empty()) {
    auto retention = parse_retention(wish.retention);
    if (!retention) return fail(std::move(retention.error()));
    formed.retention = to_string(*retention);
  }
  if (static_cast<WriteMode>(wish.mode) == WriteMode::replace) {
    const auto precious = std::ranges::count_if(state.steps, [](const auto& entry) { return entry.second.precious(); });
    if (precious > 0 && !wish.force) {
      return fail(ErrorCode::refused,
                  fmt::format("{} precious steps of this stream are not staged out yet and would be lost; stage them "
                              "out, append instead, or force it",
                              precious),
                  where);
    }
    if (state.next_step > 0) formed.withdraws_from = 0;
  } else if (wish.append_after) {
    if (*wish.append_after >= state.next_step) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("cannot append after step {}: the stream {}", *wish.append_after,
                              state.next_step == 0 ? std::string("is empty")
                                                   : fmt::format("ends with step {}", state.next_step - 1)),
                  where);
    }
    if (*wish.append_after + 1 < state.next_step) formed.withdraws_from = *wish.append_after + 1;
  }
  formed.incarnation = (state.group ? state.group->incarnation : 0) + 1;
  formed.ranks = wish.ranks;
  formed.group = wish.group;
  formed.epoch = formed.withdraws_from ? state.epoch + 1 : state.epoch;
  formed.next_step = formed.withdraws_from.value_or(state.next_step);
  formed.when_full = wish.when_full;
  formed.grace_ms = wish.grace_ms;
  formed.distribution = wish.distribution;
  formed.block_timeout_ms = wish.block_timeout_ms;
  formed.durability = wish.durability;
  if (candidates_.size() <= storage::openings_max) {
    for (const auto& [number, candidate] : candidates_) formed.openings.push_back(candidate.wish.opening);
  }
  const std::uint32_t incarnation = formed.incarnation;
  fail_point("server.form.before_group");
  // One record: a crash leaves either the old stream or the new group, and nothing is withdrawn for a group that is
  // not.
  if (auto recorded = stream_.form_group(std::move(formed)); !recorded) return recorded;
  incarnation_ = incarnation;
  options_ = wish;
  active_ = true;
  step_order_.reset();
  if (wish.distribution != 0) followers_.set_stream_distribution(static_cast<StepDistribution>(wish.distribution));
  log::info("stream {}: incarnation {} of {} ranks writes from step {}", stream_.path(), incarnation_, wish.ranks,
            state.next_step);
  return {};
}

}  // namespace forebay::server
