// SPDX-License-Identifier: Apache-2.0
#include "loop/user_turns.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "loop/connection.h"

namespace forebay::server {

void UserTurns::wait(Connection& connection) {
  waiting_[connection.peer().uid].push_back(&connection);
  post_turn();
}

void UserTurns::spend(uid_t user, std::int64_t ns) {
  if (std::exchange(spent_in_, loop_.turn()) != loop_.turn()) spent_ns_.clear();
  spent_ns_[user] += ns;
}

bool UserTurns::has_spent(uid_t user) const {
  const auto found = spent_ns_.find(user);
  return spent_in_ == loop_.turn() && found != spent_ns_.end() && found->second >= turn_ns_;
}

void UserTurns::forget(Connection& connection) {
  const auto found = waiting_.find(connection.peer().uid);
  if (found == waiting_.end()) return;
  std::erase(found->second, &connection);
  if (found->second.empty()) waiting_.erase(found);
}

void UserTurns::post_turn() {
  // What came in meanwhile at other connections is dealt with in between.
  if (std::exchange(posted_, true)) return;
  loop_.post([this] {
    posted_ = false;
    take_turn();
  });
}

void UserTurns::take_turn() {
  std::vector<uid_t> users;
  for (const auto& [user, connections] : waiting_) users.push_back(user);
  for (const uid_t user : users) {
    const std::int64_t until_ns = monotonic_ns() + turn_ns_;
    for (auto found = waiting_.find(user); found != waiting_.end(); found = waiting_.find(user)) {
      Connection& next = *found->second.front();
      found->second.pop_front();
      if (found->second.empty()) waiting_.erase(found);
      next.go_on();
      if (monotonic_ns() >= until_ns) break;
    }
  }
  if (!waiting_.empty()) post_turn();
}

}  // namespace forebay::server
