// SPDX-License-Identifier: Apache-2.0
// How a writer group comes into being: ranks gather until all N are there, then one incarnation begins and all older
// ones are fenced.
#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/plain_text.h"
#include "base/return_error.h"
#include "space/reservation_space.h"
#include "writers/writer_group.h"
#include "writers/writer_session.h"

namespace forebay::server {

std::optional<Error> WriterGroup::other_name(const wire::WriterOpenT& asked) const {
  if (!state_.group || state_.group->original_name.empty() || asked.original_name.empty()) return std::nullopt;
  const std::string& known = state_.group->original_name;
  if (known == asked.original_name) return std::nullopt;
  constexpr std::size_t shown_bytes_max = 80;
  const std::string both =
      fmt::format("this stream was written as \"{}\", and \"{}\" leads to it, too", plain_text(known, shown_bytes_max),
                  plain_text(asked.original_name, shown_bytes_max));
  const std::string where = "stream " + stream_.path();
  if (incarnation_.active())
    return Error{ErrorCode::busy, both + "; its writers are still at work: use {path} in place of {name}", where};
  if (asked.force && static_cast<WriteMode>(asked.mode) == WriteMode::replace) return std::nullopt;
  return Error{ErrorCode::refused,
               fmt::format("{}; use {{path}} in place of {{name}}, remove the stream (`forebay stream remove {}`), or "
                           "replace it with Force=true",
                           both, stream_.path()),
               where};
}

std::optional<Error> WriterGroup::refusal(const wire::WriterOpenT& asked) const {
  if (auto refused = forming_.refusal(asked)) return refused;
  if (auto refused = other_name(asked)) return refused;
  if (!incarnation_.active() || rejoining()) return std::nullopt;
  return Error{ErrorCode::busy,
               fmt::format("another writer group writes this stream (incarnation {}, {} ranks, pids {}); wait for it "
                           "to close, or end it",
                           incarnation_.number(), incarnation_.ranks().size(), incarnation_.describe_processes()),
               "stream " + stream_.path()};
}

void WriterGroup::notice_lost_ranks() {
  for (std::size_t number = 0; incarnation_.active() && number < incarnation_.ranks().size(); ++number) {
    const WriterRank& rank = incarnation_.ranks()[number];
    WriterSession* const session = rank.session;
    if (session == nullptr || rank.closed || !session->connection().peer_gone()) continue;
    // It may have said why.
    session->connection().receive_rest();
    if (incarnation_.is_member(*session)) lost(*session, session->describe_end("the connection ended"));
    // Its own end comes later, and perhaps after that of the stream.
    session->stream_removed();
  }
}

bool WriterGroup::lives() {
  notice_lost_ranks();
  return active() && !rejoining();
}

void WriterGroup::open(WriterSession& session, std::uint32_t request, const wire::WriterOpenT& asked) {
  // A restart may come before the end of the ranks that it follows has been handled.
  notice_lost_ranks();
  if (take_place(session, request, asked)) return;
  if (rejoining()) give_up_return_if_gone(asked.gone);
  if (const auto error = refusal(asked)) {
    session.connection().answer_failure(request, *error);
    if (!is_expected()) stream_.writer_refused(asked.run, error->what);
    return;
  }
  if (const auto error = forming_.conflict(session, asked)) {
    session.connection().answer_failure(request, *error);
    refuse_forming(asked.run, *error);
    return;
  }
  session.rank = asked.rank;
  forming_.add(session, request, asked, [this](const wire::WriterOpenT& late) { forming_timed_out(late); });
  form_if_whole();
}

void WriterGroup::forming_timed_out(const wire::WriterOpenT& asked) {
  const std::string missing = forming_.describe_missing();
  std::string text;
  if (!missing.empty()) {
    text = fmt::format(
        "rank {} of {} did not open the stream within {} s; the number of ranks came from {}: set Ranks (or "
        "FOREBAY_RANKS) if it is wrong",
        missing, asked.ranks, static_cast<double>(asked.open_timeout_ms) / 1000, asked.ranks_source);
  } else if (rejoining()) {
    text = "the group that wrote this stream before the server was restarted may still come back";
  } else {
    text = fmt::format("waited for {} readers (RendezvousReaderCount), {} came", asked.rendezvous_readers,
                       followers_.readers_for(asked.run));
  }
  refuse_forming(asked.run, {ErrorCode::timeout, text, "stream " + stream_.path()});
}

std::string WriterGroup::describe_forming() const {
  const wire::WriterOpenT& asked = forming_.asked();
  if (const std::string missing = forming_.describe_missing(); !missing.empty())
    return fmt::format("rank {} of {} to open the stream", missing, asked.ranks);
  if (active()) return "the group that wrote this stream before the server was restarted";
  return fmt::format("{} readers (RendezvousReaderCount), of which {} are here", asked.rendezvous_readers,
                     followers_.readers_for(asked.run));
}

void WriterGroup::describe_waits(std::vector<StreamWait>& waits) const {
  if (!forming_.is_empty()) forming_.describe_waits(describe_forming(), waits);
  for (auto& wait : space_.queue().waits_of(stream_)) {
    const auto& ranks = incarnation_.ranks();
    // One that is no member any more is still in the queue until its turn.
    if (wait.rank >= ranks.size() || ranks[wait.rank].session == nullptr) continue;
    waits.push_back(
        writer_wait(*ranks[wait.rank].session, StreamWait::Kind::space, std::move(wait.wanted), wait.since_ns));
  }
  if (step_open()) {
    const std::string late = incarnation_.describe_late();
    for (const WriterRank& rank : incarnation_.ranks()) {
      if (!rank.part || rank.session == nullptr || late.empty()) continue;
      waits.push_back(writer_wait(*rank.session, StreamWait::Kind::group,
                                  fmt::format("rank {} to end step {}", late, state_.next_step), rank.part->since_ns));
    }
  }
  lag_waits_.describe_waits(waits);
  durable_waits_.describe_waits(waits);
}

// By value: it may be the run of a candidate, and these go here.
void WriterGroup::refuse_forming(std::string run, const Error& error) {
  forming_.fail_all(error);
  stream_.writer_refused(run, error.what);
}

void WriterGroup::report_refused(const wire::WriterRefusedT& report, const std::string& why) {
  if (active()) return;
  if (forming_.is_empty()) {
    stream_.writer_refused(report.run, why);
  } else if (forming_.awaits(report)) {
    refuse_forming(forming_.asked().run,
                   {ErrorCode::refused, fmt::format("rank {} of this group was refused: {}", report.rank, why),
                    "stream " + stream_.path()});
  }
}

void WriterGroup::readers_changed() {
  if (!forming_.is_empty()) form_if_whole();
}

void WriterGroup::form_if_whole() {
  if (incarnation_.active() || !forming_.is_whole()) return;
  if (followers_.readers_for(forming_.asked().run) < forming_.asked().rendezvous_readers) return;
  const wire::WriterOpenT asked = forming_.asked();
  if (auto begun = begin_incarnation(asked); !begun) {
    refuse_forming(asked.run, begun.error());
    return;
  }
  durable_waits_.fail_from(state_.next_step,
                           {ErrorCode::fenced, "a newer writer group has withdrawn the step before it was durable",
                            "stream " + stream_.path()});
  for (const auto& [number, candidate] : forming_.take()) join(number, *candidate.session, candidate.request);
  followers_.status_changed();
  followers_.writer_came();
}

void WriterGroup::join(std::uint32_t number, WriterSession& session, std::uint32_t request) {
  incarnation_.ranks()[number].session = &session;
  session.member = true;
  session.incarnation = incarnation_.number();
  wire::WriterOpenedT opened;
  opened.uuid = state_.uuid;
  opened.epoch = state_.epoch;
  opened.incarnation = incarnation_.number();
  opened.next_step = state_.next_step;
  opened.segment_bytes = space_.segments().record().segment_bytes;
  opened.member_segments = space_.segments().layout().member_segments();
  opened.stripe_bytes = space_.segments().record().stripe_bytes;
  opened.interruption = interruption_;
  session.connection().answer(protocol::MessageType::writer_opened, request, opened);
}

Result<void> WriterGroup::begin_incarnation(const wire::WriterOpenT& asked) {
  ASSIGN_OR_RETURN(journal::GroupFormedT formed, forming_.record(state_));
  fail_point("server.form.before_group");
  const std::string interruption = state_.status == StreamStatus::interrupted ? state_.status_text : std::string();
  // One record: a crash leaves either the old stream or the new group, and nothing is withdrawn for a group that is
  // not.
  RETURN_IF_ERROR(stream_.form_group(std::move(formed)));
  interruption_ = interruption;
  incarnation_.begin(*state_.group);
  grants_.step_over();
  lag_waits_.begin_group();
  if (asked.distribution != 0)
    followers_.sharing().set_stream_distribution(static_cast<StepDistribution>(asked.distribution));
  space_.segments().lines.info("stream {}: incarnation {} of {} ranks writes from step {}{}{}", stream_.path(),
                               incarnation_.number(), asked.ranks, state_.next_step,
                               interruption_.empty() ? "" : "; the group before it was interrupted: ", interruption_);
  return {};
}

}  // namespace forebay::server
