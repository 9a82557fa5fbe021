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

std::optional<Error> WriterGroup::refusal(const wire::WriterOpenT& wish) const {
  if (auto refused = forming_.refusal(wish)) return refused;
  if (!active_ || rejoining_) return std::nullopt;
  std::string pids;
  for (const Rank& rank : ranks_) {
    if (rank.session != nullptr)
      pids += fmt::format("{}{}", pids.empty() ? "" : ", ", rank.session->connection().peer().pid);
  }
  return Error{ErrorCode::busy,
               fmt::format("another writer group writes this stream (incarnation {}, {} ranks, pids {}); wait for it "
                           "to close, or end it",
                           incarnation_, ranks_.size(), pids),
               "stream " + stream_.path()};
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
  if (const auto error = forming_.conflict(session, wish)) {
    session.connection().answer_failure(request, *error);
    forming_.fail_all(*error);
    return;
  }
  session.rank = wish.rank;
  forming_.add(session, request, wish, [this](const wire::WriterOpenT& late) { forming_timed_out(late); });
  form_if_whole();
}

void WriterGroup::forming_timed_out(const wire::WriterOpenT& wish) {
  const std::string missing = forming_.describe_missing();
  std::string text;
  if (!missing.empty()) {
    text = fmt::format(
        "rank {} of {} did not open the stream within {} s; the number of ranks came from {}: set Ranks (or "
        "FOREBAY_RANKS) if it is wrong",
        missing, wish.ranks, static_cast<double>(wish.open_timeout_ms) / 1000, wish.ranks_source);
  } else if (rejoining_) {
    text = "the group that wrote this stream before the server was restarted may still come back";
  } else {
    text = fmt::format("{} readers were waited for (RendezvousReaderCount), {} came", wish.rendezvous_readers,
                       followers_.follower_count());
  }
  forming_.fail_all({ErrorCode::timeout, text, "stream " + stream_.path()});
}

void WriterGroup::readers_changed() {
  if (!forming_.is_empty()) form_if_whole();
}

void WriterGroup::form_if_whole() {
  if (active_ || !forming_.is_whole() || followers_.follower_count() < forming_.wish().rendezvous_readers) return;
  const wire::WriterOpenT wish = forming_.wish();
  if (auto begun = begin_incarnation(wish); !begun) {
    forming_.fail_all(begun.error());
    return;
  }
  fail_withdrawn_waiters();
  ranks_.clear();
  ranks_.resize(wish.ranks);
  for (const auto& [number, candidate] : forming_.take()) join(number, *candidate.session, candidate.request);
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
  opened.member_segments = space_.segments().layout().member_segments();
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
  formed.run = wish.run;
  formed.epoch = formed.withdraws_from ? state.epoch + 1 : state.epoch;
  formed.next_step = formed.withdraws_from.value_or(state.next_step);
  formed.when_full = wish.when_full;
  formed.grace_ms = wish.grace_ms;
  formed.distribution = wish.distribution;
  formed.block_timeout_ms = wish.block_timeout_ms;
  formed.durability = wish.durability;
  if (wish.ranks <= storage::openings_max) formed.openings = forming_.openings();
  const std::uint32_t incarnation = formed.incarnation;
  fail_point("server.form.before_group");
  // One record: a crash leaves either the old stream or the new group, and nothing is withdrawn for a group that is
  // not.
  if (auto recorded = stream_.form_group(std::move(formed)); !recorded) return recorded;
  incarnation_ = incarnation;
  options_ = wish;
  active_ = true;
  step_order_.reset();
  if (wish.distribution != 0)
    followers_.sharing().set_stream_distribution(static_cast<StepDistribution>(wish.distribution));
  log::info("stream {}: incarnation {} of {} ranks writes from step {}", stream_.path(), incarnation_, wish.ranks,
            state.next_step);
  return {};
}

}  // namespace forebay::server
