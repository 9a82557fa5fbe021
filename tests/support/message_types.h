// SPDX-License-Identifier: Apache-2.0
// Which messages clients send: what has one of each, or an entry for each, can prove that none was forgotten.
#pragma once

#include <cstdint>

#include "protocol/message.h"

namespace forebay::testing {

/// Without a default: a type that is new in messages.fbs does not compile before it stands in one of the rows.
constexpr bool is_request(protocol::MessageType type) {
  using enum protocol::MessageType;
  switch (type) {
    case hello:
    case server_query:
    case reservation_create:
    case reservation_destroy:
    case reservations_query:
    case streams_query:
    case steps_query:
    case stream_remove:
    case consumer_remove:
    case retention_set:
    case staged_mark:
    case precious_set:
    case steps_drop:
    case audit_query:
    case reservation_share:
    case reservation_change:
    case files_adopt:
    case writer_open:
    case writer_rejoin:
    case space_request:
    case part:
    case step_begin:
    case step_abort:
    case writer_close:
    case writer_leave:
    case writer_refused:
    case reader_open:
    case step_wait:
    case step_get:
    case step_release:
    case cursor_move:
    case segments_get:
    case step_check:
    case reader_leave:
    case step_poll:
    case token_create:
    case token_revoke:
    case home_query:
    case pool_directory:
    case manager_call:
    case member_query:
    case member_open:
    case member_look:
    case member_sync:
    case member_fence:
    case member_probe:
    case member_checksum:
      return true;
    case none:
    case welcome:
    case failure:
    case done:
    case server_answer:
    case reservations_answer:
    case streams_answer:
    case steps_answer:
    case audit_answer:
    case writer_opened:
    case writer_rejoined:
    case space_granted:
    case committed:
    case reader_opened:
    case step_event:
    case segments_answer:
    case token_answer:
    case home_answer:
    case manager_answer:
    case member_answer:
    case member_opened:
    case member_state:
    case member_synced:
    case member_probed:
    case member_checksummed:
      return false;
    // Of clients on other nodes, or to them: what speaks over the local socket has none of them.
    case remote_hello:
    case remote_challenge:
    case remote_proof:
    case heartbeat:
    case data_open:
    case data_opened:
    case data_hello:
    case bytes_get:
    case probe_get:
    case ranks_missing:
    case ranks_missing_answer:
      return false;
  }
  return false;
}

/// The first request of which `has` says that it is not there; none if there is one of each.
template <class Has>
constexpr protocol::MessageType missing_request(const Has& has) {
  using protocol::MessageType;
  for (std::uint32_t number = 0; number <= static_cast<std::uint32_t>(MessageType::MAX); ++number) {
    const auto type = static_cast<MessageType>(number);
    if (is_request(type) && !has(type)) return type;
  }
  return MessageType::none;
}

}  // namespace forebay::testing
