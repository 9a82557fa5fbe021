// SPDX-License-Identifier: Apache-2.0
#include "readers/followers.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "protocol/record_conversion.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"
#include "space/reservation_space.h"

namespace forebay::server {
namespace {

/// How long readers wait after a commit: all but one, and that one too where the step is large. Readers copy as soon as
/// they are woken, and the writers would wait for a processor: a reader that is woken first may even take the server's
/// own before the writers are answered.
constexpr std::int64_t writers_lead_ns = 50'000;
constexpr std::uint64_t large_step_bytes = std::uint64_t{256} << 10;

}  // namespace

Followers::Followers(FollowedStream& stream, const storage::StreamState& state, ReservationSpace& space,
                     EventLoop& loop, ReaderRegistry& registry)
    : stream_(stream),
      state_(state),
      space_(space),
      loop_(loop),
      registry_(registry),
      pins_(stream, state, space, registry),
      cursors_(stream, state),
      sharing_(state, sessions_) {
  registry_.add(*this);
}

Followers::~Followers() {
  registry_.remove(*this);
  if (deferred_) loop_.cancel(*deferred_);
}

std::uint64_t Followers::first_position(const ReaderSession& session, const wire::ReaderOpenT& wish) const {
  if (wish.resume) {
    if (wish.epoch == state_.epoch) return wish.position;
    // Steps of epochs that it has not seen replace what was withdrawn: it goes back to the first of them.
    const auto rewritten = std::ranges::find_if(
        state_.steps, [&](const auto& entry) { return entry.second.committed.epoch > wish.epoch; });
    return std::min(wish.position, rewritten == state_.steps.end() ? state_.next_step : rewritten->first);
  }
  const std::uint64_t oldest = state_.steps.empty() ? state_.next_step : state_.steps.begin()->first;
  switch (static_cast<Start::Kind>(wish.start_kind)) {
    case Start::Kind::oldest:
      return oldest;
    case Start::Kind::latest:
      return state_.steps.empty() ? state_.next_step : state_.steps.rbegin()->first;
    case Start::Kind::next:
      return state_.next_step;
    case Start::Kind::step:
      return wish.start_step;
    default:
      break;
  }
  const auto cursor = state_.cursors.find(session.consumer);
  return cursor != state_.cursors.end() && !session.consumer.empty() ? cursor->second.position : oldest;
}

Result<void> Followers::join(ReaderSession& session, const wire::ReaderOpenT& wish) {
  const bool shares = session.follow && sharing_.shares(session);
  const bool holds_name = session.follow && !shares && !session.consumer.empty();
  if (holds_name) RETURN_IF_ERROR(cursors_.check_free(session.consumer));
  session.position = first_position(session, wish);
  if (wish.resume) session.rewound = session.position < wish.position;
  // A named consumer that retention waits for counts from the moment when it is first seen.
  // Steps that do not exist yet it has not passed, though it may want none of them.
  const std::uint64_t passed = std::min(session.position, state_.next_step);
  const auto cursor = state_.cursors.find(session.consumer);
  const bool moves_cursor = !session.consumer.empty() && session.follow && !wish.resume &&
                            (cursor == state_.cursors.end() || cursor->second.position != passed);
  if (moves_cursor) RETURN_IF_ERROR(cursors_.set(session.consumer, passed));
  if (holds_name) cursors_.hold(session);
  if (shares) sharing_.begin(session);
  session.told_status = state_.status;
  sessions_.emplace(session.number, &session);
  if (moves_cursor) stream_.what_may_go_changed();
  return {};
}

void Followers::stop_following(ReaderSession& session) {
  session.follow = false;
  session.wait_request.reset();
  cursors_.let_go(session);
  sharing_.leave(session);
  stream_.readers_moved();
}

void Followers::leave(ReaderSession& session, bool holds_on) {
  if (sessions_.erase(session.number) == 0) return;
  stop_following(session);
  pins_.leave(session, holds_on);
  serve_all();
  stream_.what_may_go_changed();
}

void Followers::removed() {
  for (const auto& [number, session] : sessions_) {
    pins_.forget(*session);
    session->stream_removed();
  }
  pins_.forget_absent();
  sessions_.clear();
}

std::uint64_t Followers::visible_limit(const ReaderSession& session) const {
  return session.min_watermark == Watermark::durable ? stream_.durable_next() : state_.next_step;
}

const storage::StepState* Followers::next_for(ReaderSession& session) {
  const std::uint64_t limit = visible_limit(session);
  if (sharing_.shares(session)) return sharing_.next(session, limit);
  const storage::StepState* step = first_kept(state_, session.position, limit);
  if (step == nullptr) return nullptr;
  if (session.latest_only) step = &std::prev(state_.steps.lower_bound(limit))->second;
  session.skipped += step->committed.step - session.position;
  return step;
}

bool Followers::answer_end(ReaderSession& session) {
  const storage::StreamState& state = state_;
  const bool over = state.status == StreamStatus::ended || state.status == StreamStatus::failed ||
                    (state.status == StreamStatus::interrupted && stream_.grace_over());
  // Steps that are committed but not durable yet come later.
  const bool everything_seen = state.status == StreamStatus::failed || visible_limit(session) >= state.next_step;
  wire::StepEventT event;
  event.status = static_cast<std::uint8_t>(state.status);
  event.text = state.status_text;
  if (over && everything_seen) {
    event.kind = static_cast<std::uint8_t>(NextStep::Kind::end_of_stream);
  } else if (session.status_to_tell) {
    event.kind = static_cast<std::uint8_t>(NextStep::Kind::notice);
  } else {
    return false;
  }
  session.status_to_tell = false;
  session.told_status = state.status;
  const std::uint32_t request = *session.wait_request;
  session.wait_request.reset();
  session.connection().answer(protocol::MessageType::step_event, request, event);
  return true;
}

void Followers::serve(ReaderSession& session) {
  if (!session.wait_request || session.connection().closing()) return;
  if (const storage::StepState* step = next_for(session)) {
    const std::uint32_t request = *session.wait_request;
    session.wait_request.reset();
    session.position = step->committed.step + 1;
    deliver(session, request, *step, true);
    stream_.readers_moved();
    return;
  }
  if (!answer_end(session) && session.min_watermark == Watermark::durable) stream_.make_durable_soon();
}

void Followers::serve_all() {
  if (deferred_) loop_.cancel(*deferred_);
  deferred_.reset();
  // Serving does not change the set, but what it calls may close connections later: work on a copy.
  const auto sessions = sessions_;
  for (const auto& [number, session] : sessions) serve(*session);
}

void Followers::serve_deferred() {
  if (deferred_) serve_all();
}

void Followers::serve_first(std::uint64_t size_bytes) {
  if (size_bytes >= large_step_bytes) return;
  auto next = sessions_.upper_bound(last_served_first_);
  for (std::size_t tried = 0; tried < sessions_.size(); ++tried, ++next) {
    if (next == sessions_.end()) next = sessions_.begin();
    ReaderSession& session = *next->second;
    if (!session.wait_request) continue;
    serve(session);
    if (session.wait_request) continue;
    last_served_first_ = session.number;
    return;
  }
}

void Followers::serve_rest_later() {
  if (std::ranges::none_of(sessions_, [](const auto& entry) { return entry.second->wait_request.has_value(); })) return;
  deferred_ = loop_.at(monotonic_ns() + writers_lead_ns, [this] {
    deferred_.reset();
    serve_all();
  });
}

void Followers::status_changed() {
  for (const auto& [number, session] : sessions_) session->status_to_tell = session->told_status != state_.status;
  serve_all();
}

void Followers::deliver(ReaderSession& session, std::uint32_t request, const storage::StepState& step, bool in_turn) {
  wire::StepEventT event;
  event.kind = static_cast<std::uint8_t>(NextStep::Kind::step);
  event.status = static_cast<std::uint8_t>(state_.status);
  event.step = std::make_unique<wire::StepDescriptorT>();
  event.step->pinned = pins_.pin(session, {step.committed.epoch, step.committed.step}, step.committed.size_bytes);
  event.step->summary = std::make_unique<wire::StepSummary>(protocol::to_wire(stream_.summary(step)));
  std::vector<std::uint32_t> wanted;
  for (const auto& part : step.committed.parts) {
    auto reference = std::make_unique<wire::PartReferenceT>();
    reference->rank = part->rank;
    reference->metadata_bytes = part->metadata_bytes;
    reference->metadata_crc = part->metadata_crc;
    for (const auto& extent : part->metadata)
      reference->metadata.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
    for (const auto& extent : part->extents) wanted.push_back(extent.segment());
    event.step->parts.push_back(std::move(reference));
  }
  if (in_turn) {
    event.rewound = std::exchange(session.rewound, false);
    event.skipped = std::exchange(session.skipped, 0);
  }
  auto descriptors = session.descriptors_for(wanted, event.segments);
  fail_point("server.deliver.before_answer");
  session.connection().answer(protocol::MessageType::step_event, request, event, std::move(descriptors));
}

Result<void> Followers::get_step(ReaderSession& session, std::uint32_t request, std::uint64_t number) {
  const auto found = state_.steps.find(number);
  const std::string where = fmt::format("stream {}, step {}", stream_.path(), number);
  if (found == state_.steps.end()) {
    if (number < state_.next_step) {
      return fail(ErrorCode::step_gone,
                  "the step is no longer kept: retention dropped it, or it was withdrawn; list the steps that are kept",
                  where);
    }
    return fail(ErrorCode::not_found,
                fmt::format("there is no such step yet; step {} comes next: follow the stream", state_.next_step),
                where);
  }
  if (number >= visible_limit(session))
    return fail(ErrorCode::not_found, "the step is committed but not durable yet; follow the stream to wait for it",
                where);
  deliver(session, request, found->second, false);
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

Result<void> Followers::move_cursor(ReaderSession& session, const wire::CursorMoveT& move) {
  if (!move.seek) return cursors_.acknowledge(session.consumer, move.epoch, move.position);
  // Retention would drop what a cursor far ahead has passed, and a writer's steps to come with it.
  if (move.position > state_.next_step) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("step {} does not exist yet; seek to a step from 0 to {} (the next one)", move.position,
                            state_.next_step),
                fmt::format("stream {}, consumer \"{}\"", stream_.path(), session.consumer));
  }
  // What a wait from before it would bring is not wanted any more.
  session.wait_request.reset();
  session.position = move.position;
  // Readers without a name that share steps out are not moved by a stranger.
  if (!session.consumer.empty() || !session.access.guest) sharing_.seek(session.consumer, move.position);
  stream_.readers_moved();
  if (session.consumer.empty()) return {};
  RETURN_IF_ERROR(cursors_.set(session.consumer, move.position));
  stream_.what_may_go_changed();
  return {};
}

void Followers::rewound(std::uint64_t first) {
  cursors_.set_back(first);
  for (const auto& [number, session] : sessions_) {
    if (session->position <= first) continue;
    session->position = first;
    session->rewound = true;
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

std::uint32_t Followers::follower_count() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(sessions_, [](const auto& entry) { return entry.second->follow; }));
}

bool Followers::waits_for_durable() const {
  return std::ranges::any_of(sessions_, [](const auto& entry) {
    return entry.second->wait_request && entry.second->min_watermark == Watermark::durable;
  });
}

}  // namespace forebay::server
