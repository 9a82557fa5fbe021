// SPDX-License-Identifier: Apache-2.0
#include "client/connection/reconnect.h"

#include <algorithm>

#include "base/return_error.h"
#include "client/connection/pause.h"

namespace forebay::client {
namespace {

// A server that runs answers Hello at once.
constexpr std::int64_t hello_timeout_ms = 30'000;
constexpr std::int64_t pause_first_ms = 5;
constexpr std::int64_t pause_longest_ms = 100;

Deadline hello_deadline(Deadline limit) {
  const Deadline own = Deadline::after_ms(hello_timeout_ms);
  return own.at_ns() < limit.at_ns() ? own : limit;
}

}  // namespace

Deadline open_deadline(std::int64_t timeout_ms) {
  return timeout_ms < 0 ? Deadline::never() : Deadline::after_ms(timeout_ms + hello_timeout_ms);
}

Result<std::shared_ptr<Connection>> connect_server(const ServerPlace& place, const InterruptHook& interrupt) {
  return Connection::open(place, hello_deadline(Deadline::never()), interrupt);
}

Result<std::shared_ptr<Connection>> reconnect_server(const ServerPlace& last_place, Deadline deadline,
                                                     const InterruptHook& interrupt, const Resume& resume) {
  ServerPlace place = last_place;
  std::int64_t next_pause_ms = pause_first_ms;
  while (true) {
    auto connection = Connection::open(place, hello_deadline(deadline), interrupt);
    if (connection) {
      auto resumed = resume(*connection);
      if (resumed) return connection;
      if (!(*connection)->is_broken()) return fail(std::move(resumed.error()));
    } else if (connection.error().code != ErrorCode::disconnected && connection.error().code != ErrorCode::timeout) {
      return connection;
    }
    if (deadline.passed()) {
      return fail(ErrorCode::disconnected,
                  "the Forebay server has gone and did not come back in time; restart it with `forebay up` (what was "
                  "committed is safe) "
                  "and open the stream again",
                  last_place.root.empty() ? last_place.text() : last_place.root);
    }
    place = last_place.now();
    RETURN_IF_ERROR(pause_ms(std::min(next_pause_ms, deadline.remaining_ms(pause_longest_ms)), interrupt));
    next_pause_ms = std::min(2 * next_pause_ms, pause_longest_ms);
  }
}

}  // namespace forebay::client
