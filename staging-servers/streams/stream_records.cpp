// SPDX-License-Identifier: Apache-2.0
// How a stream's records are written down, and what a failure to do so means.
#include <cstdlib>
#include <utility>

#include "base/fail_point.h"
#include "base/log.h"
#include "streams/stream.h"

namespace forebay::server {

Result<void> Stream::append(storage::RecordType type, std::span<const std::uint8_t> body) {
  fail_point("server.record.before_append");
  if (auto appended = journal_.append(type, body); !appended) {
    const ErrorCode code = appended.error().code;
    if (code == ErrorCode::no_space || code == ErrorCode::invalid_argument)
      return appended;  // the journal is as it was
    // The journal is broken: what was in it stays readable, nothing can be added.
    state_.status = StreamStatus::failed;
    state_.status_text = "the journal cannot be written: " + appended.error().message();
    log::error("stream {}: {}", path(), state_.status_text);
    const Error failed{ErrorCode::failed, state_.status_text, "stream " + path()};
    post([this, failed] {
      group_.fail_waiting(failed);
      followers_.status_changed();
      space_.queue().changed(SpaceChange::less);
    });
    return fail(failed);
  }
  fail_point("server.record.after_append");
  return {};
}

void Stream::post_roll() {
  if (std::exchange(roll_posted_, true)) return;
  post([this] {
    roll_posted_ = false;
    if (journal_.should_roll()) (void)journal_.roll();
  });
}

Result<void> Stream::applied(Result<void> result) {
  // The record was made here from the state at hand: a contradiction is a bug, and going on would make it worse.
  if (!result) {
    log::error("stream {}: a record of our own does not apply: {}", path(), result.error().message());
    std::abort();
  }
  return result;
}

}  // namespace forebay::server
