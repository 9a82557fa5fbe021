// SPDX-License-Identifier: Apache-2.0
// The space of a reservation's journals: their reserve, and beyond it free segments, whose space goes back to the
// device for as long as the journals take more. So a reservation never takes more than its capacity.
#include <sys/stat.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/fail_point.h"
#include "base/log.h"
#include "reservation.h"
#include "server.h"
#include "stream.h"

namespace forebay::server {
namespace {

/// What folders and the identity file take on the device besides: of a reservation, and of each stream.
constexpr std::uint64_t fixed_bytes = std::uint64_t{32} << 10;
constexpr std::uint64_t stream_folder_bytes = std::uint64_t{4} << 10;
/// Rolling a journal to make room is worth it from so much behind its checkpoint.
constexpr std::uint64_t roll_bytes_min = std::uint64_t{32} << 10;
/// Beyond what is needed, before a segment is taken back: else it would come and go.
constexpr std::uint64_t room_to_grow = std::uint64_t{64} << 10;

/// Shares of the reserve that stay for records of which more depends: a commit was granted its space, and what frees
/// space or ends something has to find room always.
constexpr std::uint64_t share_for_commits = 4;
constexpr std::uint64_t share_for_ends = 8;

}  // namespace

storage::JournalOptions Reservation::journal_options() {
  storage::JournalOptions options;
  options.growth_bytes = std::min(options.growth_bytes, record_.journal_reserve_bytes / 4);
  options.may_take = [this](std::uint64_t bytes, storage::RecordType type) { return may_take(bytes, type); };
  return options;
}

std::uint64_t Reservation::journal_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [stream_name, stream] : streams_) bytes += stream->journal().size_bytes();
  return bytes;
}

std::uint64_t Reservation::lent_bytes() const noexcept {
  return lent_.size() * record_.segment_bytes;
}

std::uint64_t Reservation::bytes_beside_segments() const {
  return fixed_bytes + streams_.size() * stream_folder_bytes + journal_bytes();
}

std::uint64_t Reservation::kept_back_from(storage::RecordType type) const noexcept {
  if (type == storage::RecordType::checkpoint || storage::frees_or_ends(type)) return 0;
  const bool commits = type == storage::RecordType::step_committed;
  return record_.journal_reserve_bytes / (commits ? share_for_ends : share_for_commits);
}

bool Reservation::has_journal_room(std::uint64_t bytes, storage::RecordType type) const {
  return bytes_beside_segments() + bytes + kept_back_from(type) <= record_.journal_reserve_bytes + lent_bytes();
}

bool Reservation::may_take(std::uint64_t bytes, storage::RecordType type) {
  // What is free is known once all streams have been recovered.
  if (recovering_) return true;
  while (!has_journal_room(bytes, type)) {
    if (!lend_segment()) return false;
  }
  return true;
}

bool Reservation::make_room_for_step(Stream& stream) {
  // A part's record names its rank, its extents and its metadata's place.
  constexpr std::uint64_t step_bytes = 1024;
  constexpr std::uint64_t rank_bytes = 256;
  const std::uint64_t needed = step_bytes + rank_bytes * stream.group().rank_count();
  constexpr auto type = storage::RecordType::segments_owned;
  if (stream.journal().spare_bytes() >= needed || may_take(needed, type)) return true;
  bool rolled = false;
  for (auto& [name, other] : streams_) {
    if (other->journal().has_grown_by(roll_bytes_min)) rolled = other->roll_journal() || rolled;
  }
  if (rolled && may_take(needed, type)) return true;
  // Emptied segments of groups that write go by a record, which no journal takes while it takes another.
  const Owner nobody{.stream = std::numeric_limits<std::uint64_t>::max()};
  return take_emptied_segments(nobody, record_.segment_bytes) && may_take(needed, type);
}

bool Reservation::lend_segment() {
  if (!unreadable_.empty() || retiring) return false;
  // The last first: writers get the first.
  for (std::uint32_t segment = space_.segment_count(); segment-- > 0;) {
    if (!space_.is_whole_free(segment)) continue;
    if (const auto owner = space_.owner(segment)) {
      if (is_living(*owner)) continue;
      const auto unwritten = storage::nobody_writes(server_.store().segment_path(record_.id, segment));
      if (!unwritten || !*unwritten) continue;
    }
    if (!free_segment(segment)) return false;
    fail_point("server.lend.after_free");
    space_.set_owner(segment, std::nullopt);
    space_.close(segment);
    lent_.insert(segment);
    log::info("reservation {}: segment {} makes room for journals, which take {} bytes", name(), segment,
              journal_bytes());
    return true;
  }
  return false;
}

bool Reservation::free_segment(std::uint32_t segment) {
  auto file = server_.device().open(server_.store().segment_path(record_.id, segment), OpenMode::read_write);
  auto freed = file ? (*file)->free_space() : fail(std::move(file.error()));
  if (!freed)
    log::warning("segment {} of {} cannot make room for journals: {}", segment, name(), freed.error().message());
  return freed.has_value();
}

bool Reservation::take_back_segment(std::uint32_t segment) {
  auto file = server_.device().open(server_.store().segment_path(record_.id, segment), OpenMode::read_write);
  auto allocated = file ? (*file)->allocate(record_.segment_bytes) : fail(std::move(file.error()));
  if (!allocated) {
    log::warning("segment {} of {} cannot be taken back from the journals: {}", segment, name(),
                 allocated.error().message());
    return false;
  }
  fail_point("server.lend.after_take_back");
  lent_.erase(segment);
  space_.reopen(segment);
  log::info("reservation {}: journals leave segment {} again", name(), segment);
  return true;
}

void Reservation::journals_shrank() {
  if (retiring || lent_.empty()) return;
  const auto leave_one = [this] {
    return has_journal_room(record_.segment_bytes + room_to_grow, storage::RecordType::segments_owned);
  };
  while (!lent_.empty() && leave_one() && take_back_segment(*lent_.begin())) {
  }
  space_changed();
}

void Reservation::recover_lent_segments() {
  for (std::uint32_t segment = 0; segment < space_.segment_count(); ++segment) {
    struct stat status{};
    const std::string path = server_.store().segment_path(record_.id, segment);
    if (::stat(path.c_str(), &status) != 0 ||
        static_cast<std::uint64_t>(status.st_blocks) * 512 >= record_.segment_bytes)
      continue;
    const bool holds_steps = !space_.is_whole_free(segment);
    space_.close(segment);
    lent_.insert(segment);
    // Power loss may have brought back some of it, with steps that nobody knows to be dropped.
    if (holds_steps || (status.st_blocks > 0 && !free_segment(segment))) (void)take_back_segment(segment);
  }
  journals_shrank();
  // Of a server that did not hold its journals to anything, or died before.
  while (!has_journal_room(0, storage::RecordType::checkpoint)) {
    if (!lend_segment()) {
      log::warning("reservation {}: the journals take {} bytes, more than is kept for them, and no segment is free",
                   name(), journal_bytes());
      break;
    }
  }
}

}  // namespace forebay::server
