// SPDX-License-Identifier: Apache-2.0
#include "streams/stream_journal.h"

#include <algorithm>
#include <utility>

#include "base/fail_point.h"
#include "base/invariant.h"
#include "base/log.h"
#include "space/reservation_space.h"
#include "storage/framing.h"

namespace forebay::server {
namespace {

/// From how much on it is worth it to roll a journal that has to make room.
constexpr std::uint64_t roll_bytes_min = std::uint64_t{32} << 10;
/// The same for a record that was refused.
constexpr std::uint64_t roll_bytes_refused = std::uint64_t{8} << 10;

}  // namespace

StreamJournal::StreamJournal(ReservationSpace& space, const storage::StreamState& state,
                             std::shared_ptr<storage::Journal> journal, const JournalWaste& waste)
    : space_(space), state_(state), journal_(std::move(journal)), waste_(waste) {}

Result<void> StreamJournal::append(storage::RecordType type, std::span<const std::uint8_t> body) {
  auto appended = journal_->append(type, body);
  // Records of what is no more may take the room for this one, which may be what makes room itself.
  const auto is_refused = [&] { return !appended && appended.error().code == ErrorCode::no_space; };
  if (is_refused() && rolling_frees(roll_bytes_refused) && roll()) appended = journal_->append(type, body);
  if (is_refused() && space_.journal_room().roll_others(*this)) appended = journal_->append(type, body);
  if (!appended) return appended;
  waste_.add(type, storage::frame_bytes(body.size()));
  // It has taken room for records.
  space_.queue().changed(SpaceChange::less);
  return {};
}

std::uint64_t StreamJournal::step_record_bytes(std::size_t extents) const {
  // A part's names its rank, its extents and its metadata's place.
  const std::uint64_t ranks = state_.group ? state_.group->ranks : 0;
  for (const auto& [rank, set] : state_.held_attributes) extents += set.extents.size();
  return 1024 + 256 * ranks + sizeof(journal::Extent) * extents;
}

std::uint64_t StreamJournal::wasted_bytes() const {
  return waste_.bytes(state_.steps.size() + state_.retired.size());
}

bool StreamJournal::rolling_frees(std::uint64_t bytes) const {
  return wasted_bytes() > std::max(bytes, roll_refused_below_);
}

bool StreamJournal::should_roll() const {
  // Where journals take segments of the space for data, one that tells of steps which are gone takes them for nothing.
  return journal_->wants_checkpoint() || (space_.journal_room().lends_segments() &&
                                          rolling_frees(std::max(journal_->size_bytes() / 2, roll_bytes_min)));
}

bool StreamJournal::is_worth_rolling(bool for_itself) const {
  const std::uint64_t size = std::min(journal_->size_bytes(), space_.journal_room().reserve_bytes());
  return rolling_frees(for_itself ? std::max(roll_bytes_refused, size / 64) : std::max(roll_bytes_min, size / 16));
}

bool StreamJournal::shrinks_with_drops() const {
  return waste_.bytes(0) > std::max(roll_bytes_refused, roll_refused_below_);
}

bool StreamJournal::roll() {
  // Its files go by name.
  if (space_.segments().retiring || state_.status == StreamStatus::failed) return false;
  fail_point("server.roll.before");
  const auto checkpoint = state_.checkpoint_body();
  const auto rolled =
      checkpoint ? journal_->roll({checkpoint->data(), checkpoint->size()}) : Result<void>(fail(checkpoint.error()));
  if (!rolled) {
    log::warning("stream {}/{}: the journal could not be rolled: {}", space_.reservation(), state_.name,
                 rolled.error().message());
    roll_refused_below_ = wasted_bytes() + roll_bytes_refused;
    space_.queue().changed(SpaceChange::less);
    return false;
  }
  fail_point("server.roll.after");
  roll_refused_below_ = 0;
  waste_.begin_file(state_.steps.size() + state_.retired.size(), checkpoint->size());
  space_.journal_room().shrank();
  space_.queue().changed(SpaceChange::more);
  return true;
}

std::size_t StreamJournal::check() const {
  const auto about = [this](const char* what) { return "stream " + state_.name + ": " + what; };
  invariant(journal_->spare_bytes() <= journal_->size_bytes(),
            [&] { return about("the journal has more room than it takes"); });
  invariant(wasted_bytes() <= journal_->size_bytes(),
            [&] { return about("a roll would free more than the journal takes"); });
  return 1;
}

}  // namespace forebay::server
