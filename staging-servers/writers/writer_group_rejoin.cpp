// SPDX-License-Identifier: Apache-2.0
// How a writer group goes on after a restart of the server: its ranks come back, say which space they hold and which
// step they were writing, and the group is whole again once all have, or is interrupted after a grace time.
#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "space/reservation_space.h"
#include "writers/writer_group.h"
#include "writers/writer_session.h"

namespace forebay::server {

void WriterGroup::expect_rejoin(std::int64_t grace_ms) {
  const auto& group = *state_.group;
  active_ = true;
  rejoining_ = true;
  incarnation_ = group.incarnation;
  options_.when_full = group.when_full;
  options_.block_timeout_ms = group.block_timeout_ms;
  options_.durability = group.durability;
  options_.grace_ms = group.grace_ms;
  options_.ranks = group.ranks;
  if (group.distribution != 0)
    followers_.sharing().set_stream_distribution(static_cast<StepDistribution>(group.distribution));
  ranks_.clear();
  ranks_.resize(group.ranks);
  for (const std::uint32_t rank : state_.closed_ranks) ranks_[rank].closed = true;
  rejoin_timer_ = loop_.at(Deadline::after_ms(grace_ms).at_ns(), [this] {
    rejoin_timer_.reset();
    std::string missing;
    for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
      if (ranks_[number].session == nullptr && !ranks_[number].closed)
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", number);
    }
    break_group(fmt::format("rank {} of {} did not come back after the server was restarted", missing, ranks_.size()));
  });
}

void WriterGroup::rejoin(WriterSession& session, std::uint32_t request, const wire::WriterRejoinT& wish) {
  const std::string where = fmt::format("stream {}, rank {}", stream_.path(), wish.rank);
  const storage::StreamState& state = state_;
  if (!state.group || wish.incarnation < state.group->incarnation || wish.epoch != state.epoch) {
    session.connection().answer_failure(request, {ErrorCode::fenced, "a newer writer group has taken over", where});
    return;
  }
  const bool ended = state.status == StreamStatus::ended && wish.incarnation == state.group->incarnation;
  if (ended || (rejoining_ && wish.rank < ranks_.size() && ranks_[wish.rank].closed)) {
    // It had closed, and the server died before it could say so.
    session.has_closed = true;
    wire::WriterRejoinedT rejoined;
    rejoined.next_step = state.next_step;
    session.connection().answer(protocol::MessageType::writer_rejoined, request, rejoined);
    return;
  }
  if (!active_ || !rejoining_ || wish.incarnation != incarnation_ || wish.ranks != ranks_.size() ||
      wish.rank >= ranks_.size() || ranks_[wish.rank].session != nullptr) {
    session.connection().answer_failure(
        request,
        {ErrorCode::group_broken, "the writer group is no more: " + state.status_text + "; restart it", where});
    return;
  }
  Rank& rank = ranks_[wish.rank];
  rank.session = &session;
  session.rank = wish.rank;
  session.incarnation = incarnation_;
  session.member = true;
  SpaceMap& space = space_.map();
  const SegmentLayout& layout = space_.segments().layout();
  for (const wire::Extent& extent : wish.held) {
    const Extent plain{extent.segment(), extent.offset(), extent.length()};
    if (!space.is_valid(plain) || layout.member_of(plain.segment) != extent.member()) continue;
    const auto owner = space.owner(plain.segment);
    if (!owner || !owns(*owner)) continue;
    space_.claim(stream_, plain);
    // What a part in flight held that has committed is taken already.
    rank.granted.add(space.take_free(plain));
  }
  wire::WriterRejoinedT rejoined;
  rejoined.next_step = state.next_step;
  session.connection().answer(protocol::MessageType::writer_rejoined, request, rejoined);
  finish_rejoin_if_whole();
}

bool WriterGroup::take_place(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& wish) {
  if (!rejoining_ || wish.opening == 0 || wish.rank >= ranks_.size()) return false;
  const auto& openings = state_.group->openings;
  if (wish.rank >= openings.size() || openings[wish.rank] != wish.opening) return false;
  if (ranks_[wish.rank].session != nullptr || ranks_[wish.rank].closed) return false;
  session.rank = wish.rank;
  join(wish.rank, session, request);
  finish_rejoin_if_whole();
  return true;
}

void WriterGroup::finish_rejoin_if_whole() {
  if (!std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.session != nullptr || rank.closed; })) return;
  rejoining_ = false;
  if (rejoin_timer_) loop_.cancel(*rejoin_timer_);
  rejoin_timer_.reset();
  log::info("stream {}: all {} ranks of incarnation {} are back", stream_.path(), ranks_.size(), incarnation_);
  if (!forming_.is_empty()) {
    forming_.fail_all({ErrorCode::busy,
                       "another writer group writes this stream and has come back after the server was restarted",
                       "stream " + stream_.path()});
  }
  for (auto& task : std::exchange(deferred_, {})) task();
  space_.queue().changed(SpaceChange::more);
}

}  // namespace forebay::server
