// SPDX-License-Identifier: Apache-2.0
#include "readers/followers.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "protocol/record_conversion.h"
#include "readers/carried_step.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"
#include "readers/step_descriptor.h"
#include "space/reservation_space.h"

namespace forebay::server {
namespace {

/// How long readers wait after a commit: all but one, and that one too where the step is large. Readers copy as soon as
/// they are woken, and the writers would wait for a processor: a reader that is woken first may even take the server's
/// own before the writers are answered.
constexpr std::int64_t writers_lead_ns = 50'000;
constexpr std::uint64_t large_step_bytes = std::uint64_t{256} << 10;
constexpr std::uint32_t steps_listed_max = 4096;

tl::unexpected<Error> lost_step(std::uint64_t number, std::string where) {
  return fail(ErrorCode::step_gone,
              fmt::format("step {} is lost: bytes of it are gone with a member of the reservation", number),
              std::move(where));
}

}  // namespace

Error refused_writer(const std::string& stream, const std::string& why) {
  return {ErrorCode::refused, "the writer of this stream was refused: " + why + "; start it anew, then read again",
          "stream " + stream};
}

Followers::Followers(FollowedStream& stream, const storage::StreamState& state, ReservationSpace& space,
                     EventLoop& loop, ReaderRegistry& registry)
    : stream_(stream),
      state_(state),
      space_(space),
      loop_(loop),
      registry_(registry),
      pins_(stream, state, space, registry),
      cursors_(stream, state),
      sharing_(state),
      next_steps_(state, sharing_,
                  [this](const journal::StepCommittedT& step) {
                    return absence_of(space_.segments().others(), step, state_.durable_next);
                  }),
      writer_waits_(stream, state) {
  registry_.add(*this);
}

Followers::~Followers() {
  registry_.remove(*this);
  registry_.serving().forget(*this);
  if (deferred_) loop_.cancel(*deferred_);
}

void Followers::set_range(Follower& reader, const wire::ReaderOpenT& asked) const {
  reader.first_step = state_.in_this_epoch(asked.epoch, asked.first_step);
  if (asked.wait_for_writer && !asked.resume && state_.group) reader.first_step = state_.group->next_step;
  reader.run = asked.run;
  reader.run_end.reset();
  if (asked.run.empty()) return;
  const auto range = state_.steps_of_run(asked.run);
  if (range) reader.first_step = std::max(reader.first_step, range->first);
  if (range && !range->end) return;
  RunEnd end;
  end.step = range ? *range->end : 0;
  end.status = range && range->status == StreamStatus::ended ? StreamStatus::ended : StreamStatus::interrupted;
  end.text = fmt::format("run {} is over: another run has begun", quoted_run(asked.run));
  reader.run_end = std::move(end);
}

std::uint64_t Followers::first_position(const Follower& reader, const wire::ReaderOpenT& asked) const {
  // Steps of epochs that it has not seen replace what was withdrawn: it goes back to the first of them.
  if (asked.resume) return state_.in_this_epoch(asked.epoch, asked.position);
  const std::uint64_t oldest = state_.steps.empty() ? state_.next_step : state_.steps.begin()->first;
  const auto after_newest = reader.run_end ? state_.steps.lower_bound(reader.run_end->step) : state_.steps.end();
  switch (static_cast<Start::Kind>(asked.start_kind)) {
    case Start::Kind::oldest:
      return oldest;
    case Start::Kind::latest:
      return after_newest == state_.steps.begin() ? state_.next_step : std::prev(after_newest)->first;
    case Start::Kind::next:
      return state_.next_step;
    case Start::Kind::step:
      return asked.start_step;
    default:
      break;
  }
  const auto cursor = state_.cursors.find(reader.consumer);
  return cursor != state_.cursors.end() && !reader.consumer.empty() ? cursor->second.position : oldest;
}

Result<void> Followers::join(Follower& reader) {
  const wire::ReaderOpenT& asked = reader.asked();
  reader.run = asked.run;
  const bool shares = reader.follow && sharing_.shares(reader);
  const bool holds_name = reader.follow && !shares && !reader.consumer.empty();
  if (holds_name) RETURN_IF_ERROR(cursors_.check_free(reader.consumer));
  set_range(reader, asked);
  reader.share = reader.consumer;
  if (!reader.run.empty() || reader.first_step > 0)
    reader.share += fmt::format(" from step {} of run {}", reader.first_step, reader.run);
  reader.position = std::max(first_position(reader, asked), reader.first_step);
  if (asked.resume) reader.rewound = reader.position < asked.position;
  // A named consumer that retention waits for counts from the moment when it is first seen.
  // Steps that do not exist yet it has not passed, though it may want none of them.
  const std::uint64_t passed = std::min(reader.position, state_.next_step);
  const auto cursor = state_.cursors.find(reader.consumer);
  const bool moves_cursor = !reader.consumer.empty() && reader.follow && !asked.resume &&
                            (cursor == state_.cursors.end() || cursor->second.position != passed);
  if (moves_cursor) RETURN_IF_ERROR(cursors_.set(reader.consumer, passed));
  if (holds_name) cursors_.hold(reader);
  if (reader.follow) sharing_.begin(reader);
  reader.told_status = state_.status;
  readers_.emplace(reader.number, &reader);
  if (moves_cursor) stream_.what_may_go_changed();
  return {};
}

void Followers::move_back(Follower& reader, const wire::ReaderOpenT& asked) {
  set_range(reader, asked);
  reader.position = std::max(first_position(reader, asked), reader.first_step);
  reader.rewound = reader.position < asked.position;
}

void Followers::stop_following(Follower& reader) {
  reader.follow = false;
  reader.drop_wait();
  cursors_.let_go(reader);
  sharing_.leave(reader);
  stream_.readers_moved();
}

void Followers::leave(Follower& reader) {
  if (readers_.erase(reader.number) == 0) return;
  end_answering(reader);
  stop_following(reader);
  serve_all();
}

void Followers::attach(ReaderSession& session) {
  sessions_.emplace(session.number, &session);
}

void Followers::detach(ReaderSession& session, bool holds_on) {
  if (sessions_.erase(session.number) == 0) return;
  pins_.leave(session, holds_on);
  serve_all();
  stream_.what_may_go_changed();
}

void Followers::removed() {
  left_ = 0;
  answering_.clear();
  registry_.serving().forget(*this);
  for (const auto& [number, reader] : std::exchange(readers_, {})) reader->stream_removed();
  for (const auto& [number, session] : std::exchange(sessions_, {})) {
    pins_.forget(*session);
    session->stream_removed();
  }
  pins_.forget_absent();
  writer_waits_.stream_removed();
}

std::uint64_t Followers::visible_limit(const Follower& reader) const {
  return reader.min_watermark == Watermark::durable ? stream_.durable_next() : state_.next_step;
}

std::uint64_t Followers::taken_limit(const Follower& reader) const {
  const std::uint64_t limit = visible_limit(reader);
  return reader.run_end ? std::min(limit, reader.run_end->step) : limit;
}

bool Followers::answer_absence(Follower& reader, const NextStepFound& next) {
  const bool is_told = reader.absence == (next.absence ? next.absence->what : "");
  reader.absence = next.absence ? next.absence->what : "";
  wire::StepEventT notice;
  notice.kind = static_cast<std::uint8_t>(NextStep::Kind::notice);
  notice.status = static_cast<std::uint8_t>(state_.status);
  if (!next.passed_over.empty()) {
    notice.text = next.passed_over;
    reader.tell(std::move(notice));
    stream_.readers_moved();
    return true;
  }
  if (!next.absence || !next.absence->is_known) return false;
  if (reader.on_unavailable == OnUnavailable::error) {
    reader.refuse({ErrorCode::unavailable, next.absence->what + "; ask again later, or set OnUnavailable=skip",
                   "stream " + stream_.path()});
    return true;
  }
  // Once: the next wait may be a long one.
  if (is_told) return false;
  notice.text = "waiting for a server that is away: " + reader.absence;
  reader.tell(std::move(notice));
  return true;
}

bool Followers::answer_end(Follower& reader, bool step_left) {
  const storage::StreamState& state = state_;
  const bool over = state.status == StreamStatus::ended || state.status == StreamStatus::failed ||
                    (state.status == StreamStatus::interrupted && stream_.grace_over());
  // Steps that are committed but not durable yet come later.
  const bool everything_seen =
      !step_left && (state.status == StreamStatus::failed || visible_limit(reader) >= state.next_step);
  wire::StepEventT event;
  event.status = static_cast<std::uint8_t>(state.status);
  event.text = state.status_text;
  if (reader.run_end) {
    if (step_left) return false;
    // What becomes of the stream now is another run's.
    if (visible_limit(reader) < reader.run_end->step && state.status != StreamStatus::failed) return false;
    event.kind = static_cast<std::uint8_t>(NextStep::Kind::end_of_stream);
    event.status = static_cast<std::uint8_t>(reader.run_end->status);
    event.text = reader.run_end->text;
  } else if (over && everything_seen) {
    event.kind = static_cast<std::uint8_t>(NextStep::Kind::end_of_stream);
  } else if (reader.status_to_tell) {
    event.kind = static_cast<std::uint8_t>(NextStep::Kind::notice);
    if (state.status == StreamStatus::interrupted && !stream_.grace_over())
      event.text += "; " + stream_.describe_grace();
  } else {
    return false;
  }
  reader.status_to_tell = false;
  reader.told_status = state.status;
  reader.tell(std::move(event));
  return true;
}

bool Followers::answer_refusal(Follower& reader) {
  if (reader.refusal_to_tell.empty()) return false;
  const std::string why = std::exchange(reader.refusal_to_tell, {});
  if (state_.status != StreamStatus::interrupted) {
    reader.refuse(refused_writer(stream_.path(), why));
    return true;
  }
  // It waits for a restart anyway, and not for ever.
  wire::StepEventT event;
  event.kind = static_cast<std::uint8_t>(NextStep::Kind::notice);
  event.status = static_cast<std::uint8_t>(state_.status);
  event.text = "a restart was refused: " + why + "; " + stream_.describe_grace();
  reader.tell(std::move(event));
  return true;
}

void Followers::serve(Follower& reader) {
  if (!reader.waits() || reader.closing()) return;
  const NextStepFound next = next_steps_.find(reader, taken_limit(reader));
  if (answer_absence(reader, next)) return;
  if (next.step != nullptr && !next.absence) {
    next_steps_.take(reader, *next.step);
    const bool rewound = std::exchange(reader.rewound, false);
    reader.give(*next.step, rewound, std::exchange(reader.skipped, 0));
    stream_.readers_moved();
    return;
  }
  if (answer_end(reader, next.step != nullptr) || answer_refusal(reader)) return;
  if (reader.min_watermark == Watermark::durable) stream_.make_durable_soon();
}

void Followers::serve_all() {
  if (deferred_) loop_.cancel(*deferred_);
  deferred_.reset();
  const bool held_steps = std::exchange(left_, readers_.size()) > 0;
  if (!serve_slice() || held_steps) registry_.serving().go_on(*this);
}

bool Followers::serve_some() {
  if (!serve_slice()) return false;
  if (!is_serving()) stream_.what_may_go_changed();
  return true;
}

bool Followers::serve_slice() {
  ServingTurns::Slice slice(registry_.serving());
  while (left_ > 0 && !readers_.empty()) {
    auto next = readers_.upper_bound(last_served_);
    if (next == readers_.end()) next = readers_.begin();
    Follower& reader = *next->second;
    if (reader.waits() && !slice.has_time()) return false;
    last_served_ = reader.number;
    --left_;
    serve(reader);
  }
  left_ = 0;
  return true;
}

void Followers::end_answering(const Follower& group) {
  if (answering_.erase(&group) > 0 && !is_serving()) stream_.what_may_go_changed();
}

void Followers::serve_deferred() {
  if (deferred_) serve_all();
}

void Followers::serve_first(std::uint64_t size_bytes) {
  if (size_bytes >= large_step_bytes) return;
  auto next = readers_.upper_bound(last_served_first_);
  for (std::size_t tried = 0; tried < readers_.size(); ++tried, ++next) {
    if (next == readers_.end()) next = readers_.begin();
    Follower& reader = *next->second;
    if (!reader.waits()) continue;
    serve(reader);
    if (reader.waits()) continue;
    last_served_first_ = reader.number;
    return;
  }
}

void Followers::serve_rest_later() {
  if (std::ranges::none_of(readers_, [](const auto& entry) { return entry.second->waits(); })) return;
  serve_at(monotonic_ns() + writers_lead_ns);
}

void Followers::serve_at(std::int64_t time_ns) {
  deferred_ = loop_.at(time_ns, [this] {
    deferred_.reset();
    serve_all();
  });
}

void Followers::steps_dropped() {
  const bool any_waits = std::ranges::any_of(
      readers_, [](const auto& entry) { return entry.second->waits() && !entry.second->absence.empty(); });
  if (any_waits && !deferred_) serve_at(monotonic_ns());
}

void Followers::status_changed() {
  for (const auto& [number, reader] : readers_) {
    reader->status_to_tell = reader->told_status != state_.status;
    if (state_.status == StreamStatus::live) reader->refusal_to_tell.clear();
  }
  serve_all();
}

void Followers::writer_refused(const std::string& run, const std::string& why) {
  writer_waits_.writer_refused(run, why);
  for (const auto& [number, reader] : readers_) {
    if (reader->follow && reader->wants_run(run)) reader->refusal_to_tell = why;
  }
  serve_all();
}

void Followers::deliver(ReaderSession& session, std::uint32_t request, const storage::StepState& step,
                        wire::StepEventT event) {
  event.kind = static_cast<std::uint8_t>(NextStep::Kind::step);
  event.status = static_cast<std::uint8_t>(state_.status);
  const StepKey key{step.committed.epoch, step.committed.step};
  const bool pinned = pins_.pin(session, key, step.committed.size_bytes);
  const bool here = !session.connection().is_remote();
  auto described = describe(space_.segments(), step.committed, {pinned, here, session.connection().peer().uid});
  event.step = std::move(described.descriptor);
  event.step->pinned = pinned;
  event.step->summary = std::make_unique<wire::StepSummary>(protocol::to_wire(stream_.summary(step)));
  event.step->fresh = stream_.committed_lately(key);
  if (!here) carry(space_.segments(), step.committed, *event.step);
  auto descriptors = session.descriptors_for(described.segments, event.segments);
  fail_point("server.deliver.before_answer");
  session.connection().answer(protocol::MessageType::step_event, request, event, std::move(descriptors));
}

Result<void> Followers::get_step(ReaderSession& session, const Follower& reader, std::uint32_t request,
                                 std::uint64_t number, std::uint32_t epoch) {
  const auto found = state_.steps.find(number);
  const std::string where = fmt::format("stream {}, step {}", stream_.path(), number);
  if (number < reader.first_step || (reader.run_end && number >= reader.run_end->step)) {
    return fail(ErrorCode::not_found,
                reader.run.empty()
                    ? "the step is older than the writer group that this reader was opened for"
                    : "the step is not one of run " + quoted_run(reader.run) + ", for which this reader was opened",
                where);
  }
  if (const auto held = state_.retired.find({epoch, number}); held != state_.retired.end()) {
    RETURN_IF_ERROR(check_not_lost(held->first));
    deliver(session, request, held->second, {});
    return {};
  }
  if (found == state_.steps.end()) {
    if (state_.is_lost(number)) return lost_step(number, where);
    if (number < state_.next_step) {
      return fail(ErrorCode::step_gone,
                  "the step is no longer kept: retention dropped it, it was withdrawn, or it went with a member of the "
                  "reservation; list the steps that are kept",
                  where);
    }
    return fail(ErrorCode::not_found,
                fmt::format("there is no such step yet; step {} comes next: follow the stream", state_.next_step),
                where);
  }
  if (number >= visible_limit(reader))
    return fail(ErrorCode::not_found, "the step is committed but not durable yet; follow the stream to wait for it",
                where);
  RETURN_IF_ERROR(check_not_lost({found->second.committed.epoch, number}));
  deliver(session, request, found->second, {});
  return {};
}

const storage::StepState* Followers::find_step(const StepKey& key) const {
  const auto kept = state_.steps.find(key.second);
  if (kept != state_.steps.end() && kept->second.committed.epoch == key.first) return &kept->second;
  const auto retired = state_.retired.find(key);
  return retired == state_.retired.end() ? nullptr : &retired->second;
}

Result<void> Followers::check(const StepKey& key) const {
  const auto found = state_.steps.find(key.second);
  if (found == state_.steps.end() || found->second.committed.epoch != key.first) {
    return fail(ErrorCode::step_gone, "the step was dropped while it was read",
                fmt::format("stream {}, step {}", stream_.path(), key.second));
  }
  return {};
}

Result<void> Followers::check_not_lost(const StepKey& key) const {
  const std::string where = fmt::format("stream {}, step {}", stream_.path(), key.second);
  if (const auto held = state_.retired.find(key); held != state_.retired.end() && held->second.lost)
    return lost_step(key.second, where);
  if (key.second < state_.durable_next || space_.segments().others() == nullptr) return {};
  const auto found = state_.steps.find(key.second);
  if (found == state_.steps.end() || found->second.committed.epoch != key.first) return {};
  const auto absence = absence_of(space_.segments().others(), found->second.committed, state_.durable_next);
  if (!absence || !absence->is_lost) return {};
  return fail(ErrorCode::step_gone, absence->what, where);
}

Result<void> Followers::move_cursor(Follower& reader, const wire::CursorMoveT& move) {
  if (!move.seek) return cursors_.acknowledge(reader.consumer, move.epoch, move.position);
  // Retention would drop what a cursor far ahead has passed, and a writer's steps to come with it.
  if (move.position > state_.next_step) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("step {} does not exist yet; seek to a step from 0 to {} (the next one)", move.position,
                            state_.next_step),
                fmt::format("stream {}, consumer \"{}\"", stream_.path(), reader.consumer));
  }
  // What a wait from before it would bring is not wanted any more.
  reader.drop_wait();
  const std::uint64_t position = std::max(move.position, reader.first_step);
  reader.position = position;
  // Readers without a name that share steps out are not moved by a stranger.
  if (!reader.consumer.empty() || !reader.access.guest) sharing_.seek(reader, position);
  stream_.readers_moved();
  if (reader.consumer.empty()) return {};
  RETURN_IF_ERROR(cursors_.set(reader.consumer, position));
  stream_.what_may_go_changed();
  return {};
}

void Followers::rewound(std::uint64_t first) {
  cursors_.set_back(first);
  for (const auto& [number, reader] : readers_) {
    reader->first_step = std::min(reader->first_step, first);
    if (reader->position <= first) continue;
    reader->position = first;
    reader->rewound = true;
  }
  sharing_.rewound(first);
}

ReaderSession* Followers::find(std::uint64_t session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

Result<void> Followers::pin_for_writer(std::uint64_t session, pid_t process, const StepKey& key) {
  return pins_.pin_for_writer(find(session), process, key);
}

void Followers::unpin_for_writer(std::uint64_t session, const StepKey& key) {
  // No step goes with it: there was none.
  if (ReaderSession* const holder = find(session)) pins_.unpin_for_writer(*holder, key);
}

void Followers::revoke(const StepKey& key) {
  for (const auto& [number, session] : sessions_) {
    // When it comes back it is told that the pin is lost.
    if (session->pins.contains(key)) session->connection().close("a step that it holds had been dropped");
  }
}

bool Followers::is_held_only_by(const StepKey& key, const std::set<uid_t>& users) const {
  const auto theirs = std::ranges::count_if(sessions_, [&](const auto& entry) {
    const ReaderSession& session = *entry.second;
    return session.pins.contains(key) && users.contains(session.connection().peer().uid);
  });
  return static_cast<std::uint32_t>(theirs) == pins_.count(key);
}

std::uint32_t Followers::readers_for(const std::string& run) const {
  const auto following = std::ranges::count_if(readers_, [&](const auto& entry) {
    const Follower& reader = *entry.second;
    return reader.follow && (reader.run.empty() || (reader.run == run && !reader.run_end));
  });
  return static_cast<std::uint32_t>(following) + writer_waits_.count(run);
}

std::map<std::uint64_t, RunEnd> Followers::runs_that_end(const journal::GroupFormedT& formed) const {
  std::map<std::uint64_t, RunEnd> ends;
  for (const auto& [number, reader] : readers_) {
    if (reader->run.empty() || reader->run == formed.run || reader->run_end) continue;
    const std::uint64_t given = sharing_.shares(*reader) ? sharing_.oldest_wanted(*reader) : reader->position;
    const bool lost_steps = formed.withdraws_from && given < state_.next_step;
    RunEnd end;
    end.step = formed.next_step;
    end.status = state_.status == StreamStatus::ended && !lost_steps ? StreamStatus::ended : StreamStatus::interrupted;
    end.text =
        fmt::format("run {} is over: {} the stream now", quoted_run(reader->run),
                    formed.run.empty() ? "a writer without a run has" : "run " + quoted_run(formed.run) + " has");
    ends.emplace(number, std::move(end));
  }
  return ends;
}

void Followers::end_runs(std::map<std::uint64_t, RunEnd> ends) {
  for (auto& [number, end] : ends) {
    if (const auto reader = readers_.find(number); reader != readers_.end()) reader->second->run_end = std::move(end);
  }
}

wire::StepsAnswerT Followers::list_steps(std::uint64_t first, std::uint32_t steps_max, const Follower* reader) const {
  wire::StepsAnswerT answer;
  steps_max = std::min(steps_max, steps_listed_max);
  const auto from = reader == nullptr ? first : std::max(first, reader->first_step);
  for (auto step = state_.steps.lower_bound(from); step != state_.steps.end(); ++step) {
    if (reader != nullptr && reader->run_end && step->first >= reader->run_end->step) break;
    if (!check_not_lost({step->second.committed.epoch, step->first})) continue;
    if (answer.steps.size() == steps_max) {
      answer.more = true;
      break;
    }
    answer.steps.push_back(protocol::to_wire(stream_.summary(step->second)));
  }
  return answer;
}

bool Followers::waits_for_durable() const {
  return std::ranges::any_of(readers_, [](const auto& entry) {
    return entry.second->waits() && entry.second->min_watermark == Watermark::durable;
  });
}

}  // namespace forebay::server
