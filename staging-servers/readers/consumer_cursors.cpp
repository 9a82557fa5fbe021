// SPDX-License-Identifier: Apache-2.0
#include "readers/consumer_cursors.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/return_error.h"
#include "readers/follower.h"

namespace forebay::server {

namespace {

bool is_of_reader_only(const std::string& consumer) {
  const std::size_t dot = consumer.find('.');
  return consumer.starts_with('u') && dot != std::string::npos && dot > 1 &&
         consumer.find_first_not_of("0123456789", 1) == dot;
}

}  // namespace

std::string consumer_of_reader(const AccessRights& access, uid_t uid, const std::string& name) {
  return name.empty() || !access.guest ? name : fmt::format("u{}.{}", uid, name);
}

Result<void> ConsumerCursors::check_free(const std::string& consumer) {
  auto holder = holders_.find(consumer);
  if (holder == holders_.end()) return {};
  // If it ended just before, its own end comes later in the queue of events, and perhaps after that of the stream.
  if (holder->second->end_if_gone()) return {};
  return fail(ErrorCode::busy,
              fmt::format("consumer \"{}\" is held by process {}; a consumer has one reader at a time: use another "
                          "name, or end that reader",
                          consumer, holder->second->peer().pid),
              "stream " + stream_.path());
}

void ConsumerCursors::hold(Follower& reader) {
  holders_.emplace(reader.consumer, &reader);
}

void ConsumerCursors::let_go(const Follower& reader) {
  if (const auto holder = holders_.find(reader.consumer); holder != holders_.end() && holder->second == &reader)
    holders_.erase(holder);
}

Result<void> ConsumerCursors::check_room(const std::string& consumer) const {
  if (state_.cursors.contains(consumer)) return {};
  const auto refuse = [&](std::ptrdiff_t count, const std::string& whose) {
    return fail(ErrorCode::no_space,
                fmt::format("the stream has {} consumers{}, as many as may be; remove some with `forebay consumer "
                            "remove {} NAME`, or read without a name",
                            count, whose, stream_.path()),
                fmt::format("consumer \"{}\"", consumer));
  };
  if (static_cast<std::ptrdiff_t>(state_.cursors.size()) >= consumers_max) return refuse(consumers_max, "");
  if (!is_of_reader_only(consumer)) return {};
  const std::string whose = consumer.substr(0, consumer.find('.') + 1);
  const auto own =
      std::ranges::count_if(state_.cursors, [&](const auto& entry) { return entry.first.starts_with(whose); });
  if (own >= guest_consumers_max) return refuse(own, " of user " + whose.substr(1, whose.size() - 2));
  const auto guests =
      std::ranges::count_if(state_.cursors, [](const auto& entry) { return is_of_reader_only(entry.first); });
  if (guests >= guests_consumers_max) return refuse(guests, " of users who may only read");
  return {};
}

Result<void> ConsumerCursors::set(const std::string& consumer, std::uint64_t position) {
  RETURN_IF_ERROR(check_room(consumer));
  journal::CursorMovedT moved;
  moved.consumer = consumer;
  moved.epoch = state_.epoch;
  moved.position = position;
  return stream_.note_cursor(std::move(moved));
}

Result<void> ConsumerCursors::acknowledge(const std::string& consumer, std::uint32_t epoch, std::uint64_t position) {
  const std::string where = fmt::format("stream {}, consumer \"{}\"", stream_.path(), consumer);
  // An acknowledgement of a step that has been withdrawn since says nothing about the steps that replace it.
  if (epoch > state_.epoch)
    return fail(ErrorCode::protocol, "an acknowledgement from an epoch that does not exist", where);
  const auto step = state_.steps.find(position - 1);
  const bool withdrawn =
      position > state_.next_step || (step != state_.steps.end() && step->second.committed.epoch != epoch);
  if (withdrawn) return {};
  if (consumer.empty()) {
    return fail(ErrorCode::invalid_argument,
                "only a named consumer has a cursor to move: open the stream with a consumer's name", where);
  }
  const auto cursor = state_.cursors.find(consumer);
  if (cursor != state_.cursors.end() && cursor->second.position >= position) return {};
  RETURN_IF_ERROR(set(consumer, position));
  stream_.what_may_go_changed();
  return {};
}

void ConsumerCursors::set_back(std::uint64_t first) {
  std::vector<std::string> beyond;
  for (const auto& [consumer, cursor] : state_.cursors) {
    // One of this epoch was put there by its consumer.
    if (cursor.position > first && cursor.epoch < state_.epoch) beyond.push_back(consumer);
  }
  for (const std::string& consumer : beyond) {
    // Those who read now go back all the same.
    if (!set(consumer, first)) break;
  }
}

std::uint64_t ConsumerCursors::first_not_passed(const std::vector<std::string>& consumers) const {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const std::string& consumer : consumers) {
    const auto cursor = state_.cursors.find(consumer);
    if (cursor == state_.cursors.end()) return 0;
    first = std::min(first, cursor->second.position);
  }
  return first;
}

std::uint64_t ConsumerCursors::first_needed() const {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [consumer, cursor] : state_.cursors) {
    // Who may only read keeps no writer from dropping the oldest.
    if (!is_of_reader_only(consumer)) first = std::min(first, cursor.position);
  }
  return first;
}

std::vector<ConsumerInfo> ConsumerCursors::list() const {
  std::vector<ConsumerInfo> found;
  for (const auto& [name, cursor] : state_.cursors) {
    ConsumerInfo info;
    info.name = name;
    info.position = cursor.position;
    info.lag_steps = state_.committed_since(cursor.position);
    if (const auto holder = holders_.find(name); holder != holders_.end()) {
      info.connected = true;
      info.holder_pid = static_cast<std::uint32_t>(holder->second->peer().pid);
    }
    found.push_back(std::move(info));
  }
  return found;
}

}  // namespace forebay::server
