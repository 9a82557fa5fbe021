// SPDX-License-Identifier: Apache-2.0
// How a writer group continues after a restart of the server: its ranks come back, say which space they hold and which
// step they were writing. The group is whole again when all have; after a grace time it is interrupted instead.
#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "space/reservation_space.h"
#include "writers/remote_window.h"
#include "writers/writer_group.h"
#include "writers/writer_session.h"

namespace forebay::server {

void WriterGroup::expect_rejoin(std::int64_t grace_ms) {
  const auto& group = *state_.group;
  incarnation_.begin(group);
  if (group.distribution != 0)
    followers_.sharing().set_stream_distribution(static_cast<StepDistribution>(group.distribution));
  for (const std::uint32_t rank : state_.closed_ranks) incarnation_.ranks()[rank].closed = true;
  gone_.clear();
  return_.begin(grace_ms, [this] {
    break_group(fmt::format("rank {} of {} did not come back after the server was restarted",
                            incarnation_.describe_missing(), incarnation_.ranks().size()));
  });
}

void WriterGroup::rejoin(WriterSession& session, std::uint32_t request, const wire::WriterRejoinT& asked) {
  const std::string where = fmt::format("stream {}, rank {}", stream_.path(), asked.rank);
  const storage::StreamState& state = state_;
  std::vector<WriterRank>& ranks = incarnation_.ranks();
  if (!state.group || asked.incarnation < state.group->incarnation || asked.epoch != state.epoch) {
    session.connection().answer_failure(request, {ErrorCode::fenced, "a newer writer group has taken over", where});
    return;
  }
  const bool ended = state.status == StreamStatus::ended && asked.incarnation == state.group->incarnation;
  if (ended || (rejoining() && asked.rank < ranks.size() && ranks[asked.rank].closed)) {
    // It had closed, and the server died before it could say so.
    session.has_closed = true;
    wire::WriterRejoinedT rejoined;
    rejoined.next_step = state.next_step;
    session.connection().answer(protocol::MessageType::writer_rejoined, request, rejoined);
    return;
  }
  if (!active() || !rejoining() || asked.incarnation != incarnation_.number() || asked.ranks != ranks.size() ||
      asked.rank >= ranks.size() || ranks[asked.rank].session != nullptr) {
    session.connection().answer_failure(
        request, {ErrorCode::group_broken, "the writer group has ended: " + state.status_text + "; restart it", where});
    return;
  }
  ranks[asked.rank].session = &session;
  session.rank = asked.rank;
  session.incarnation = incarnation_.number();
  session.member = true;
  restore_grants(ranks[asked.rank], asked.held);
  wire::WriterRejoinedT rejoined;
  rejoined.next_step = state.next_step;
  session.connection().answer(protocol::MessageType::writer_rejoined, request, rejoined);
  finish_rejoin_if_whole();
}

void WriterGroup::restore_grants(WriterRank& rank, const std::vector<wire::Extent>& held) {
  SpaceMap& space = space_.map();
  const SegmentLayout& layout = space_.segments().layout();
  for (const wire::Extent& extent : held) {
    const Extent plain{extent.segment(), extent.offset(), extent.length()};
    if (!space.is_valid(plain) || layout.member_of(plain.segment) != extent.member()) continue;
    const auto owner = space.owner(plain.segment);
    if (!owner || !owns(*owner)) continue;
    space_.claim(stream_, plain);
    // What a part in flight held that has committed is taken already.
    rank.granted.add(space.take_free(plain));
  }
  open_window(rank, space_.segments(), rank.granted.all());
}

void WriterGroup::learn_holders() {
  // A group gets a segment when nobody can write to it any more, or from a group of the same users.
  const std::set<uid_t> users = incarnation_.users();
  Segments& segments = space_.segments();
  for (std::uint32_t segment = 0; segment < space_.map().segment_count(); ++segment) {
    const auto owner = space_.map().owner(segment);
    if (owner && owns(*owner) && segments.holders(segment).contains(Segments::unknown_user))
      segments.set_holders(segment, users);
  }
}

bool WriterGroup::take_place(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& asked) {
  const std::vector<WriterRank>& ranks = incarnation_.ranks();
  if (!rejoining() || asked.opening == 0 || asked.rank >= ranks.size()) return false;
  const auto& openings = state_.group->openings;
  if (asked.rank >= openings.size() || openings[asked.rank] != asked.opening) return false;
  if (!ranks[asked.rank].is_missing()) return false;
  session.rank = asked.rank;
  join(asked.rank, session, request);
  finish_rejoin_if_whole();
  return true;
}

std::vector<std::string> WriterGroup::missing_processes() const {
  if (!rejoining()) return {};
  const auto& processes = state_.group->processes;
  const std::vector<WriterRank>& ranks = incarnation_.ranks();
  std::vector<std::string> missing;
  for (std::size_t rank = 0; rank < ranks.size() && rank < processes.size(); ++rank) {
    if (ranks[rank].is_missing()) missing.push_back(processes[rank]);
  }
  return missing;
}

void WriterGroup::give_up_return_if_gone(const std::vector<std::string>& gone) {
  const std::vector<std::string> missing = missing_processes();
  const std::set<std::string> said(gone.begin(), gone.end());
  for (const std::string& process : missing)
    if (said.contains(process)) gone_.insert(process);
  const bool all = std::ranges::all_of(missing, [this](const std::string& process) { return gone_.contains(process); });
  if (missing.empty() || !all) return;
  break_group(fmt::format("rank {} of {} ended while the server was away, as a new writer on its node says",
                          incarnation_.describe_missing(), incarnation_.ranks().size()));
}

void WriterGroup::finish_rejoin_if_whole() {
  if (!incarnation_.is_complete()) return;
  return_.end();
  space_.segments().lines.info("stream {}: all {} ranks of incarnation {} are back", stream_.path(),
                               incarnation_.ranks().size(), incarnation_.number());
  if (!forming_.is_empty()) {
    forming_.fail_all({ErrorCode::busy,
                       "another writer group writes this stream and has come back after the server was restarted",
                       "stream " + stream_.path()});
  }
  learn_holders();
  return_.run_deferred();
  followers_.writer_came();
  space_.queue().changed(SpaceChange::more);
}

}  // namespace forebay::server
