// SPDX-License-Identifier: Apache-2.0
// Named consumers' cursors, and rewinding.
#include <algorithm>

#include <fmt/format.h>

#include "readers/followers.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"
#include "space/reservation_space.h"

namespace forebay::server {

void Followers::removed() {
  PinTable& table = registry_.pins();
  for (const auto& [number, session] : sessions_) {
    for (const auto& [key, count] : session->pins) table.remove(number, key.first, key.second);
    session->stream_removed();
  }
  for (const auto& [session, held] : absent_) {
    for (const auto& [key, unnamed] : held) table.remove(session, key.first, key.second);
  }
  sessions_.clear();
}

Result<void> Followers::move_cursor(ReaderSession& session, const wire::CursorMoveT& move) {
  const storage::StreamState& state = state_;
  const std::string where = fmt::format("stream {}, consumer \"{}\"", stream_.path(), session.consumer);
  if (move.seek) {
    // Retention would drop what a cursor far ahead has passed, and a writer's steps to come with it.
    if (move.position > state.next_step) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("step {} does not exist yet; seek to a step from 0 to {} (the next one)", move.position,
                              state.next_step),
                  where);
    }
    // What a wait from before it would bring is not wanted any more.
    session.wait_request.reset();
    session.position = move.position;
    if (const auto sharing = sharings_.find(session.consumer); sharing != sharings_.end()) {
      sharing->second.next = move.position;
      sharing->second.assigned.clear();
      sharing->second.returned.clear();
    }
  } else {
    // An acknowledgement of a step that has been withdrawn since says nothing about the steps that replace it.
    if (move.epoch > state.epoch)
      return fail(ErrorCode::protocol, "an acknowledgement from an epoch that does not exist", where);
    const auto step = state.steps.find(move.position - 1);
    const bool withdrawn =
        move.position > state.next_step || (step != state.steps.end() && step->second.committed.epoch != move.epoch);
    if (withdrawn) return {};
  }
  if (session.consumer.empty()) {
    if (move.seek) return {};
    return fail(ErrorCode::invalid_argument,
                "only a named consumer has a cursor to move: open the stream with a consumer's name", where);
  }
  const auto cursor = state.cursors.find(session.consumer);
  if (!move.seek && cursor != state.cursors.end() && cursor->second.position >= move.position) return {};
  journal::CursorMovedT moved;
  moved.consumer = session.consumer;
  moved.epoch = state.epoch;
  moved.position = move.position;
  if (auto recorded = stream_.note_cursor(std::move(moved)); !recorded) return recorded;
  stream_.what_may_go_changed();
  return {};
}

void Followers::set_back_cursors(std::uint64_t first) {
  const storage::StreamState& state = state_;
  std::vector<std::string> beyond;
  for (const auto& [consumer, cursor] : state.cursors) {
    // One of this epoch was put there by its consumer.
    if (cursor.position > first && cursor.epoch < state.epoch) beyond.push_back(consumer);
  }
  for (const std::string& consumer : beyond) {
    journal::CursorMovedT moved;
    moved.consumer = consumer;
    moved.epoch = state.epoch;
    moved.position = first;
    // Those who read now go back all the same.
    if (auto recorded = stream_.note_cursor(std::move(moved)); !recorded) break;
  }
}

void Followers::rewound(std::uint64_t first) {
  set_back_cursors(first);
  for (const auto& [number, session] : sessions_) {
    if (session->position <= first) continue;
    session->position = first;
    session->rewound = true;
  }
  for (auto& [consumer, sharing] : sharings_) {
    sharing.next = std::min(sharing.next, first);
    for (auto& [reader, turns] : sharing.assigned) turns.erase(turns.lower_bound(first), turns.end());
    sharing.returned.erase(sharing.returned.lower_bound(first), sharing.returned.end());
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

bool Followers::all_passed(const std::vector<std::string>& consumers, std::uint64_t step) const {
  const auto& cursors = state_.cursors;
  return std::ranges::all_of(consumers, [&](const std::string& consumer) {
    const auto cursor = cursors.find(consumer);
    return cursor != cursors.end() && cursor->second.position > step;
  });
}

bool Followers::any_cursor_needs(std::uint64_t step) const {
  return std::ranges::any_of(state_.cursors, [&](const auto& entry) { return entry.second.position <= step; });
}

std::vector<ConsumerInfo> Followers::consumers() const {
  std::vector<ConsumerInfo> found;
  const storage::StreamState& state = state_;
  for (const auto& [name, cursor] : state.cursors) {
    ConsumerInfo info;
    info.name = name;
    info.position = cursor.position;
    info.lag_steps = state.next_step > cursor.position ? state.next_step - cursor.position : 0;
    if (const auto holder = holders_.find(name); holder != holders_.end()) {
      info.connected = true;
      info.holder_pid = static_cast<std::uint32_t>(holder->second->connection().peer().pid);
    }
    found.push_back(std::move(info));
  }
  return found;
}

}  // namespace forebay::server
