// SPDX-License-Identifier: Apache-2.0
// The records of a stream, and when its journal is rolled into a checkpoint.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/fail_point.h"
#include "base/log.h"
#include "daemon/server.h"
#include "reservations/reservation.h"
#include "storage/framing.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

/// From how much on it is worth it to roll a journal that has to make room.
constexpr std::uint64_t roll_bytes_min = std::uint64_t{32} << 10;
/// The same for a record that was refused.
constexpr std::uint64_t roll_bytes_refused = std::uint64_t{8} << 10;

}  // namespace

Result<void> Stream::append(storage::RecordType type, std::span<const std::uint8_t> body) {
  fail_point("server.record.before_append");
  auto appended = journal_->append(type, body);
  // Records of what is no more may take the room for this one, which may be what makes room itself.
  const auto is_refused = [&] { return !appended && appended.error().code == ErrorCode::no_space; };
  if (is_refused() && rolling_frees(roll_bytes_refused) && roll_journal()) appended = journal_->append(type, body);
  if (is_refused() && reservation_.roll_others(*this)) appended = journal_->append(type, body);
  if (!appended) {
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
      reservation_.less_is_coming();
    });
    return fail(failed);
  }
  waste_.add(type, storage::frame_bytes(body.size()));
  reservation_.less_is_coming();  // room for records
  fail_point("server.record.after_append");
  return {};
}

void Stream::post_roll() {
  if (std::exchange(roll_posted_, true)) return;
  post([this] {
    roll_posted_ = false;
    if (should_roll()) (void)roll_journal();
  });
}

bool Stream::rolling_frees(std::uint64_t bytes) const {
  const std::uint64_t gone = waste_.bytes(state_.steps.size() + state_.retired.size());
  return gone > std::max(bytes, roll_refused_below_);
}

bool Stream::should_roll() const {
  // Where journals take segments of the space for data, one that tells of steps which are gone takes them for nothing.
  return journal_->wants_checkpoint() ||
         (reservation_.lends_segments() && rolling_frees(std::max(journal_->size_bytes() / 2, roll_bytes_min)));
}

bool Stream::is_worth_rolling(bool for_itself) const {
  const std::uint64_t reserve = reservation_.record().journal_reserve_bytes;
  const std::uint64_t size = std::min(journal_->size_bytes(), reserve);
  return rolling_frees(for_itself ? std::max(roll_bytes_refused, size / 64) : std::max(roll_bytes_min, size / 16));
}

bool Stream::drops_shorten_journal() const {
  return waste_.bytes(0) > std::max(roll_bytes_refused, roll_refused_below_);
}

bool Stream::roll_journal() {
  // Its files go by name.
  if (reservation_.retiring || state_.status == StreamStatus::failed) return false;
  fail_point("server.roll.before");
  const auto checkpoint = state_.checkpoint_body();
  if (auto rolled = journal_->roll({checkpoint.data(), checkpoint.size()}); !rolled) {
    log::warning("stream {}: the journal could not be rolled: {}", path(), rolled.error().message());
    roll_refused_below_ = waste_.bytes(state_.steps.size() + state_.retired.size()) + roll_bytes_refused;
    reservation_.less_is_coming();
    return false;
  }
  fail_point("server.roll.after");
  roll_refused_below_ = 0;
  waste_.begin_file(state_.steps.size() + state_.retired.size(), checkpoint.size());
  reservation_.journals_shrank();
  reservation_.space_changed();
  return true;
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
