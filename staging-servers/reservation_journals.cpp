// SPDX-License-Identifier: Apache-2.0
// The space of a reservation's journals: their reserve, and beyond it what is free in segments that nobody writes,
// which goes back to the device for as long as the journals take more. So a reservation never takes more than its
// capacity.
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

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
constexpr std::uint64_t stat_block_bytes = 512;
constexpr std::uint64_t stream_folder_bytes = std::uint64_t{4} << 10;
/// A segment with less that is free makes no room.
constexpr std::uint64_t lend_bytes_min = std::uint64_t{64} << 10;
/// Beyond what is needed, before a segment is taken back: else it would come and go.
constexpr std::uint64_t room_to_grow = std::uint64_t{64} << 10;

/// Shares of the reserve that are left to records of which more depends: a commit was granted its space, and whatever
/// does not add a step has to find room always, for it may be what makes room.
constexpr std::uint64_t share_for_commits = 4;
constexpr std::uint64_t share_for_others = 8;
/// What a stream has to have room for before it is made.
constexpr std::uint64_t new_stream_bytes = std::uint64_t{96} << 10;

/// Room for the record of a step: a part's names its rank, its extents and its metadata's place.
std::uint64_t step_record_bytes(const Stream& stream) {
  return 1024 + 256 * stream.rank_count();
}

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
  std::uint64_t lent = 0;
  for (const auto& [segment, bytes] : lent_) lent += bytes;
  return lent;
}

std::uint64_t Reservation::bytes_beside_segments() const {
  return fixed_bytes + streams_.size() * stream_folder_bytes + journal_bytes();
}

std::uint64_t Reservation::kept_back_from(storage::RecordType type) const noexcept {
  if (type == storage::RecordType::segments_owned) return record_.journal_reserve_bytes / share_for_commits;
  if (type == storage::RecordType::step_committed) return record_.journal_reserve_bytes / share_for_others;
  return 0;
}

bool Reservation::has_journal_room(std::uint64_t bytes, storage::RecordType type) const {
  return bytes_beside_segments() + bytes + kept_back_from(type) <= record_.journal_reserve_bytes + lent_bytes();
}

bool Reservation::may_take(std::uint64_t bytes, storage::RecordType type) {
  // What is free is known once all streams have been recovered.
  if (recovering_) return true;
  while (!has_journal_room(bytes, type)) {
    if (lend_segment()) continue;
    // What was not enough is of no use.
    journals_shrank();
    return false;
  }
  return true;
}

bool Reservation::has_room_for_step(const Stream& stream) const {
  return stream.journal().spare_bytes() >= step_record_bytes(stream) ||
         has_journal_room(step_record_bytes(stream), storage::RecordType::segments_owned);
}

bool Reservation::drops_make_room(const Stream& stream, std::uint64_t bytes) const {
  return space_.free_bytes() < bytes || has_room_for_step(stream) ||
         stream.journal().size_bytes() > 2 * new_stream_bytes;
}

void Reservation::roll_others(const Stream& asker) {
  for (auto& [name, other] : streams_) {
    if (other.get() != &asker && other->roll_pays()) (void)other->roll_journal();
  }
}

bool Reservation::make_journal_room(Stream* asker, std::uint64_t bytes) {
  constexpr auto type = storage::RecordType::segments_owned;
  const auto has_room = [&] { return (asker != nullptr && has_room_for_step(*asker)) || may_take(bytes, type); };
  if (has_room()) return true;
  if (asker != nullptr && asker->roll_pays() && asker->roll_journal() && has_room()) return true;
  for (auto& [name, other] : streams_) {
    if (other.get() != asker && other->roll_pays() && other->roll_journal() && has_room()) return true;
  }
  // Emptied segments of groups that write go by a record, which no journal takes while it takes another.
  const Owner nobody{.stream = std::numeric_limits<std::uint64_t>::max()};
  return take_emptied_segments(nobody, record_.segment_bytes) && has_room();
}

bool Reservation::make_room_for_step(Stream& stream) {
  return make_journal_room(&stream, step_record_bytes(stream));
}

Result<void> Reservation::make_room_for_stream() {
  if (make_journal_room(nullptr, new_stream_bytes)) return {};
  return fail(ErrorCode::no_space,
              fmt::format("the journals take {} bytes, and no segment can make room for another; remove streams, drop "
                          "steps, or make a larger reservation",
                          journal_bytes()),
              "reservation " + name());
}

bool Reservation::lend_segment() {
  if (!unreadable_.empty() || retiring || !makes_holes_) return false;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> candidates;
  for (std::uint32_t segment = 0; segment < space_.segment_count(); ++segment) {
    const auto lent = lent_.find(segment);
    const std::uint64_t given = lent == lent_.end() ? 0 : lent->second;
    const std::uint64_t bytes = space_.unheld(segment).total();
    if (bytes < given + lend_bytes_min || failed_segments_.contains(segment)) continue;
    // One that could not make room before comes last.
    candidates.emplace_back(lent != lent_.end() && given == 0 ? 0 : bytes - given, segment);
  }
  // The freest first; of those that are alike the last, as writers get the first.
  std::ranges::sort(candidates, std::greater());
  for (const auto& [bytes, segment] : candidates) {
    if (const auto owner = space_.owner(segment); owner && !lent_.contains(segment)) {
      if (is_living(*owner)) continue;
      const auto unwritten = storage::nobody_writes(server_.store().segment_path(record_.id, segment));
      if (!unwritten || !*unwritten) continue;
    }
    if (!free_segment(segment)) {
      if (makes_holes_) continue;
      return false;
    }
    fail_point("server.lend.after_free");
    // Where steps lie in it still, whoever gets it next is to ask again whether it is written.
    space_.set_owner(segment, space_.is_whole_free(segment) ? std::nullopt : std::optional(unknown_owner));
    space_.close(segment);
    log::info("reservation {}: segment {} makes room for journals, which take {} bytes", name(), segment,
              journal_bytes());
    return true;
  }
  return false;
}

bool Reservation::free_segment(std::uint32_t segment) {
  const auto owner = space_.owner(segment);
  // What lies there, or will, is not known.
  if (!unreadable_.empty() || (owner && is_living(*owner))) return false;
  const auto free_all = [&]() -> Result<void> {
    auto file = server_.device().open(server_.store().segment_path(record_.id, segment), OpenMode::read_write);
    if (!file) return fail(std::move(file.error()));
    for (const auto& [offset, length] : space_.unheld(segment).ranges()) {
      if (auto freed = (*file)->free_space(offset, length); !freed) return freed;
    }
    return {};
  };
  if (auto freed = free_all(); !freed) {
    log::warning("segment {} of {} cannot make room for journals: {}", segment, name(), freed.error().message());
    makes_holes_ = freed.error().code != ErrorCode::unsupported;
    // Some of it may be gone, so nobody may write there before it is taken back.
    if (makes_holes_) {
      space_.close(segment);
      lent_.emplace(segment, 0);
    }
    return false;
  }
  lent_[segment] = space_.unheld(segment).total();
  return true;
}

bool Reservation::take_back_segment(std::uint32_t segment) {
  auto file = server_.device().open(server_.store().segment_path(record_.id, segment), OpenMode::read_write);
  auto allocated = file ? (*file)->allocate(record_.segment_bytes) : fail(std::move(file.error()));
  if (!allocated) {
    log::warning("segment {} of {} cannot be taken back from the journals: {}", segment, name(),
                 allocated.error().message());
    // A part of it may have its space again, which is counted as the journals'.
    (void)free_segment(segment);
    return false;
  }
  fail_point("server.lend.after_take_back");
  lent_.erase(segment);
  space_.reopen(segment);
  log::info("reservation {}: journals leave segment {} again", name(), segment);
  return true;
}

bool Reservation::regain_segments() {
  if (lent_.empty()) return false;
  const std::uint64_t free_before = space_.free_bytes();
  // One whose steps have gone since it was closed may make all the room that several make.
  const auto emptied = std::ranges::max_element(lent_, {}, [this](const auto& entry) {
    return space_.unheld(entry.first).total() - std::min(space_.unheld(entry.first).total(), entry.second);
  });
  if (space_.unheld(emptied->first).total() >= emptied->second + lend_bytes_min) (void)free_segment(emptied->first);
  journals_shrank();
  return space_.free_bytes() > free_before;
}

void Reservation::journals_shrank() {
  if (retiring || !unreadable_.empty()) return;
  // Those that hold no steps first: they give the most.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> lent;
  for (const auto& [segment, bytes] : lent_) {
    if (!failed_segments_.contains(segment)) lent.emplace_back(bytes, segment);
  }
  std::ranges::sort(lent, std::greater());
  bool any = false;
  for (const auto& [bytes, segment] : lent) {
    if (!has_journal_room(bytes + room_to_grow, storage::RecordType::segments_owned)) continue;
    if (!take_back_segment(segment)) break;
    any = true;
  }
  // Else whoever is served in vain would have it served again.
  if (any) space_changed();
}

void Reservation::recover_lent_segments() {
  for (std::uint32_t segment = 0; segment < space_.segment_count(); ++segment) {
    struct stat status{};
    const std::string path = server_.store().segment_path(record_.id, segment);
    if (::stat(path.c_str(), &status) != 0) continue;
    const std::uint64_t taken = static_cast<std::uint64_t>(status.st_blocks) * stat_block_bytes;
    if (taken >= record_.segment_bytes) continue;
    space_.close(segment);
    lent_[segment] = record_.segment_bytes - taken;
    // None of ours made a hole where a writer may come back, and what it holds there is not known yet.
    if (const auto owner = space_.owner(segment); owner && is_living(*owner)) (void)take_back_segment(segment);
  }
  if (lends_segments()) {
    // Its last server may have died before it rolled those that tell of steps which are gone.
    for (auto& [name, stream] : streams_) {
      const storage::Journal& journal = stream->journal();
      if (journal.has_grown_by(room_to_grow) && stream->state().checkpoint_body().size() < journal.size_bytes() / 2)
        (void)stream->roll_journal();
    }
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
