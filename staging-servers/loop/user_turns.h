// SPDX-License-Identifier: Apache-2.0
// Connections that have more to say than is dealt with at once. They go on in turns, user by user: whoever sends a
// packet of requests, on however many connections, holds up itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>

#include "loop/event_loop.h"

namespace forebay::server {

class Connection;

class UserTurns {
 public:
  UserTurns(EventLoop& loop, std::int64_t turn_ns) noexcept : loop_(loop), turn_ns_(turn_ns) {}

  /// How long a user's connections are dealt with before others are.
  std::int64_t turn_ns() const noexcept { return turn_ns_; }

  /// Some connection of the user's waits: what another one has to say comes after it.
  bool is_waiting(uid_t user) const { return waiting_.contains(user); }
  /// One of the user's connections was dealt with for so long.
  void spend(uid_t user, std::int64_t ns);
  /// They have had their time in this turn of the loop, however many they are.
  bool has_spent(uid_t user) const;
  /// Calls Connection::go_on() when it is its turn.
  void wait(Connection& connection);
  /// It is about to end.
  void forget(Connection& connection);

 private:
  void post_turn();
  void take_turn();

  EventLoop& loop_;
  const std::int64_t turn_ns_;
  std::map<uid_t, std::deque<Connection*>> waiting_;  ///< none is empty
  bool posted_ = false;
  std::map<uid_t, std::int64_t> spent_ns_;  ///< in the loop's turn `spent_in_`
  std::uint64_t spent_in_ = 0;
};

}  // namespace forebay::server
