// SPDX-License-Identifier: Apache-2.0
#include "readers/followers.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "protocol/record_conversion.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"
#include "space/reservation_space.h"

namespace forebay::server {
namespace {

/// How many dropped steps may wait for a reader whose turn they were, before they are taken out.
constexpr std::size_t assigned_dropped_max = 64;

/// How long readers wait after a commit: all but one, and that one too where the step is large. Readers copy as soon as
/// they are woken, and the writers would wait for a processor: a reader that is woken first may even take the server's
/// own before the writers are answered.
constexpr std::int64_t writers_lead_ns = 50'000;
constexpr std::uint64_t large_step_bytes = std::uint64_t{256} << 10;

}  // namespace

Followers::Followers(FollowedStream& stream, const storage::StreamState& state, ReservationSpace& space,
                     EventLoop& loop, ReaderRegistry& registry)
    : stream_(stream), state_(state), space_(space), loop_(loop), registry_(registry) {
  registry_.add(*this);
}

Followers::~Followers() {
  registry_.remove(*this);
  if (deferred_) loop_.cancel(*deferred_);
}

Result<void> Followers::join(ReaderSession& session, const wire::ReaderOpenT& wish) {
  const storage::StreamState& state = state_;
  const std::string where = "stream " + stream_.path();
  if (!session.consumer.empty() && session.follow && distribution_of(session) == StepDistribution::all_to_all) {
    auto holder = holders_.find(session.consumer);
    if (holder != holders_.end() && holder->second->connection().peer_gone()) {
      // It ended just before; its own end comes later in the queue of events, and perhaps after that of the stream.
      ReaderSession& gone = *holder->second;
      gone.closed("its connection ended");
      holder = holders_.end();
    }
    if (holder != holders_.end()) {
      return fail(ErrorCode::busy,
                  fmt::format("consumer \"{}\" is held by process {}; a consumer has one reader at a time: use another "
                              "name, or end that reader",
                              session.consumer, holder->second->connection().peer().pid),
                  where);
    }
  }
  const std::uint64_t oldest = state.steps.empty() ? state.next_step : state.steps.begin()->first;
  const auto cursor = state.cursors.find(session.consumer);
  if (wish.resume) {
    session.position = wish.position;
    if (wish.epoch != state.epoch) {
      // Steps of epochs that it has not seen replace what was withdrawn: it goes back to the first of them.
      const auto rewritten = std::ranges::find_if(
          state.steps, [&](const auto& entry) { return entry.second.committed.epoch > wish.epoch; });
      session.position = std::min(wish.position, rewritten == state.steps.end() ? state.next_step : rewritten->first);
      session.rewound = session.position < wish.position;
    }
  } else {
    switch (static_cast<Start::Kind>(wish.start_kind)) {
      case Start::Kind::oldest:
        session.position = oldest;
        break;
      case Start::Kind::latest:
        session.position = state.steps.empty() ? state.next_step : state.steps.rbegin()->first;
        break;
      case Start::Kind::next:
        session.position = state.next_step;
        break;
      case Start::Kind::step:
        session.position = wish.start_step;
        break;
      default:
        session.position =
            cursor != state.cursors.end() && !session.consumer.empty() ? cursor->second.position : oldest;
        break;
    }
  }
  // A named consumer that retention waits for counts from the moment when it is first seen.
  // Steps that do not exist yet it has not passed, though it may want none of them.
  const std::uint64_t passed = std::min(session.position, state.next_step);
  const bool moves_cursor = !session.consumer.empty() && session.follow && !wish.resume &&
                            (cursor == state.cursors.end() || cursor->second.position != passed);
  if (moves_cursor) {
    journal::CursorMovedT moved;
    moved.consumer = session.consumer;
    moved.epoch = state.epoch;
    moved.position = passed;
    if (auto recorded = stream_.note_cursor(std::move(moved)); !recorded) return recorded;
  }
  if (!session.consumer.empty() && session.follow && distribution_of(session) == StepDistribution::all_to_all)
    holders_.emplace(session.consumer, &session);
  if (session.follow && distribution_of(session) != StepDistribution::all_to_all) begin_sharing(session);
  session.told_status = state.status;
  sessions_.emplace(session.number, &session);
  if (moves_cursor) stream_.what_may_go_changed();
  return {};
}

void Followers::stop_following(ReaderSession& session) {
  session.follow = false;
  session.wait_request.reset();
  if (const auto holder = holders_.find(session.consumer); holder != holders_.end() && holder->second == &session)
    holders_.erase(holder);
  // Steps that were its turn and that it never got go to the others.
  for (auto& [consumer, sharing] : sharings_) {
    if (const auto turns = sharing.assigned.find(session.number); turns != sharing.assigned.end()) {
      sharing.returned.merge(turns->second);
      sharing.assigned.erase(turns);
    }
  }
}

void Followers::leave(ReaderSession& session, bool holds_on) {
  if (sessions_.erase(session.number) == 0) return;
  stop_following(session);
  for (const auto& [key, count] : session.pins) {
    if (holds_on) {
      // It counts as before, also among the unnamed readers' pins.
      absent_[session.number].push_back({key, session.consumer.empty()});
      continue;
    }
    registry_.pins().remove(session.number, key.first, key.second);
    unpin(key, session.consumer.empty());
  }
  session.pins.clear();
  serve_all();
  stream_.what_may_go_changed();
}

StepDistribution Followers::distribution_of(const ReaderSession& session) const {
  return session.distribution == StepDistribution::stream_default ? stream_distribution_ : session.distribution;
}

std::uint64_t Followers::visible_limit(const ReaderSession& session) const {
  return session.min_watermark == Watermark::durable ? stream_.durable_next() : state_.next_step;
}

const storage::StepState* Followers::first_kept(std::uint64_t from, std::uint64_t limit) const {
  const auto found = state_.steps.lower_bound(from);
  if (found == state_.steps.end() || found->first >= limit) return nullptr;
  return &found->second;
}

std::vector<ReaderSession*> Followers::sharers(const std::string& consumer, StepDistribution distribution) const {
  std::vector<ReaderSession*> found;
  for (const auto& [number, session] : sessions_) {
    if (session->follow && session->consumer == consumer && distribution_of(*session) == distribution)
      found.push_back(session);
  }
  return found;
}

void Followers::begin_sharing(const ReaderSession& session) {
  const auto others = sharers(session.consumer, distribution_of(session));
  const bool first = std::ranges::none_of(others, [&](const ReaderSession* other) { return other != &session; });
  // What was given to readers that have all gone is not known to have been dealt with: the cursor tells.
  if (first) sharings_[session.consumer] = Sharing{.next = session.position, .assigned = {}, .returned = {}};
}

void Followers::set_stream_distribution(StepDistribution distribution) {
  if (std::exchange(stream_distribution_, distribution) == distribution) return;
  if (distribution == StepDistribution::all_to_all) return;
  // Readers that came before the writer said so go on from the first that any of them stands at.
  std::map<std::string, std::uint64_t> starts;
  for (const auto& [number, session] : sessions_) {
    if (!session->follow || session->distribution != StepDistribution::stream_default) continue;
    const auto start = starts.emplace(session->consumer, session->position).first;
    start->second = std::min(start->second, session->position);
  }
  for (const auto& [consumer, start] : starts)
    sharings_[consumer] = Sharing{.next = start, .assigned = {}, .returned = {}};
}

void Followers::assign(Sharing& sharing, const std::vector<ReaderSession*>& readers, std::uint64_t step) {
  ReaderSession* const reader = readers[sharing.turn++ % readers.size()];
  std::set<std::uint64_t>& turns = sharing.assigned[reader->number];
  turns.insert(step);
  // A reader that has stopped must not make the server remember steps that were dropped long ago.
  const auto& kept = state_.steps;
  if (turns.size() <= 2 * kept.size() + assigned_dropped_max) return;
  reader->skipped += std::erase_if(turns, [&](std::uint64_t number) { return !kept.contains(number); });
}

const storage::StepState* Followers::next_shared(ReaderSession& session, StepDistribution distribution,
                                                 std::uint64_t limit) {
  Sharing& sharing = sharings_[session.consumer];
  const auto& kept = state_.steps;
  if (distribution == StepDistribution::on_demand) {
    const storage::StepState* step = first_kept(sharing.next, limit);
    if (step != nullptr) sharing.next = step->committed.step + 1;
    return step;
  }
  const auto readers = sharers(session.consumer, distribution);
  for (const std::uint64_t number : std::exchange(sharing.returned, {})) {
    if (kept.contains(number)) assign(sharing, readers, number);
  }
  while (const storage::StepState* step = first_kept(sharing.next, limit)) {
    sharing.next = step->committed.step + 1;
    assign(sharing, readers, step->committed.step);
  }
  std::set<std::uint64_t>& turns = sharing.assigned[session.number];
  while (!turns.empty()) {
    const auto found = kept.find(*turns.begin());
    turns.erase(turns.begin());
    if (found != kept.end()) return &found->second;
    ++session.skipped;
  }
  return nullptr;
}

const storage::StepState* Followers::next_for(ReaderSession& session) {
  const std::uint64_t limit = visible_limit(session);
  const StepDistribution distribution = distribution_of(session);
  if (distribution != StepDistribution::all_to_all) return next_shared(session, distribution, limit);
  const storage::StepState* step = first_kept(session.position, limit);
  if (step == nullptr) return nullptr;
  if (session.latest_only) {
    const auto after = state_.steps.lower_bound(limit);
    return &std::prev(after)->second;
  }
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
  event.step->pinned = pin(session, {step.committed.epoch, step.committed.step}, step.committed.size_bytes);
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
                  "the step is not kept any more: retention dropped it, or it was withdrawn; list what is kept", where);
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

Result<void> Followers::check(const StepKey& key) const {
  const auto found = state_.steps.find(key.second);
  if (found == state_.steps.end() || found->second.committed.epoch != key.first) {
    return fail(ErrorCode::step_gone, "the step was dropped while it was read",
                fmt::format("stream {}, step {}", stream_.path(), key.second));
  }
  return {};
}

}  // namespace forebay::server
