// SPDX-License-Identifier: Apache-2.0
// The space of a reservation's journals: their reserve, and beyond it what is free in segments that nobody writes,
// which goes back to the device for as long as the journals take more. So a reservation never takes more than its
// capacity.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/fail_point.h"
#include "base/log.h"
#include "daemon/server.h"
#include "reservations/reservation.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

/// What folders and the identity file take on the device besides: of a reservation, and of each stream.
constexpr std::uint64_t fixed_bytes = std::uint64_t{32} << 10;
constexpr std::uint64_t stat_block_bytes = 512;
constexpr std::uint64_t stream_folder_bytes = std::uint64_t{4} << 10;
/// A segment with less that is free in one place makes no room. The blocks in which the file system keeps the places of
/// its extents count to a file's size on the device, and would hide a smaller hole at the next start: they may be a
/// 340th of it.
constexpr std::uint64_t lend_bytes_min = std::uint64_t{64} << 10;
constexpr std::uint64_t lend_share_min = 128;

/// Shares of the reserve that are left to records of which more depends: a commit was granted its space, and whatever
/// does not add a step has to find room always, for it may be what makes room.
constexpr std::uint64_t share_for_commits = 4;
constexpr std::uint64_t share_for_others = 8;
/// Space may be granted ahead for several steps: only where there is room for their records, too.
constexpr std::uint64_t journal_room_plenty = std::uint64_t{64} << 10;
/// What a stream has to have room for before it is made.
constexpr std::uint64_t new_stream_bytes = std::uint64_t{96} << 10;

/// Room for the record of a step: a part's names its rank, its extents and its metadata's place.
std::uint64_t step_record_bytes(const Stream& stream, std::size_t extents = 0) {
  return 1024 + 256 * stream.rank_count() + sizeof(journal::Extent) * extents;
}

std::uint64_t longest(const RangeSet& ranges) {
  std::uint64_t bytes = 0;
  for (const auto& [offset, length] : ranges.ranges()) bytes = std::max(bytes, length);
  return bytes;
}

}  // namespace

storage::JournalOptions Reservation::journal_options() {
  storage::JournalOptions options;
  options.growth_bytes = std::min(options.growth_bytes, record_.journal_reserve_bytes / 4);
  options.may_take = [this](std::uint64_t bytes, storage::RecordType type, bool ahead) {
    // Room that is not needed yet takes nothing from anybody.
    if (ahead && !recovering_) return has_journal_room(bytes, storage::RecordType::segments_owned);
    return may_take(bytes, type);
  };
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

std::uint64_t Reservation::unreadable_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [stream, why] : unreadable_) {
    std::error_code error;
    const std::string folder = server_.store().stream_directory(record_.id, stream);
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      struct stat status{};
      if (::stat(entry->path().c_str(), &status) == 0)
        bytes += static_cast<std::uint64_t>(status.st_blocks) * stat_block_bytes;
    }
  }
  return bytes;
}

std::uint64_t Reservation::bytes_beside_segments() const {
  return fixed_bytes + streams_.size() * stream_folder_bytes + journal_bytes() + unreadable_bytes();
}

std::uint64_t Reservation::kept_back_from(storage::RecordType type) const noexcept {
  if (type == storage::RecordType::segments_owned) return record_.journal_reserve_bytes / share_for_commits;
  if (type == storage::RecordType::step_committed) return record_.journal_reserve_bytes / share_for_others;
  return 0;
}

std::uint64_t Reservation::lacking_journal_bytes(std::uint64_t bytes, storage::RecordType type) const {
  const std::uint64_t wanted = bytes_beside_segments() + bytes + kept_back_from(type);
  return wanted - std::min(wanted, record_.journal_reserve_bytes + lent_bytes());
}

bool Reservation::has_journal_room(std::uint64_t bytes, storage::RecordType type) const {
  return lacking_journal_bytes(bytes, type) == 0;
}

bool Reservation::may_take(std::uint64_t bytes, storage::RecordType type) {
  // What is free is known once all streams have been recovered.
  if (recovering_) return true;
  const std::uint64_t lacking = lacking_journal_bytes(bytes, type);
  if (lacking == 0) return true;
  // Nothing is emptied in vain, as far as that can be told.
  std::uint64_t lendable = 0;
  for (const auto& [segment_bytes, segment] : lendable_segments()) lendable += segment_bytes;
  if (lendable < lacking) return false;
  const std::uint64_t lent_before = lent_bytes();
  while (!has_journal_room(bytes, type)) {
    if (lend_segment()) continue;
    // Whoever is served in vain is not to be served again for what was emptied in vain.
    if (take_back_segments() && lent_bytes() < lent_before) space_changed();
    return false;
  }
  return true;
}

bool Reservation::has_room_for_step(const Stream& stream) const {
  const std::uint64_t bytes = step_record_bytes(stream);
  return stream.journal().spare_bytes() >= bytes || has_journal_room(bytes, storage::RecordType::segments_owned);
}

bool Reservation::has_plenty_of_journal_room(const Stream& stream) const {
  return has_journal_room(std::max(journal_room_plenty, step_record_bytes(stream)),
                          storage::RecordType::segments_owned);
}

bool Reservation::drops_make_room(const Stream& stream, std::uint64_t bytes) const {
  return space_.free_bytes() < bytes || has_room_for_step(stream) || stream.drops_shorten_journal();
}

bool Reservation::roll_others(const Stream& asker) {
  bool any = false;
  for (auto& [name, other] : streams_) {
    if (other.get() != &asker && other->is_worth_rolling() && other->roll_journal()) any = true;
  }
  return any;
}

bool Reservation::make_journal_room(Stream* asker, std::uint64_t bytes) {
  constexpr auto type = storage::RecordType::segments_owned;
  const auto has_room = [&] {
    return (asker != nullptr && asker->journal().spare_bytes() >= bytes) || may_take(bytes, type);
  };
  if (has_room()) return true;
  if (asker != nullptr && asker->is_worth_rolling(true) && asker->roll_journal() && has_room()) return true;
  for (auto& [name, other] : streams_) {
    if (other.get() != asker && other->is_worth_rolling() && other->roll_journal() && has_room()) return true;
  }
  if (!makes_holes_ || retiring) return false;
  // Emptied segments of groups that write go by a record, which no journal takes while it takes another.
  const Owner nobody{.stream = std::numeric_limits<std::uint64_t>::max()};
  return take_emptied_segments(nobody, record_.segment_bytes) && has_room();
}

bool Reservation::make_room_for_step(Stream& stream, std::size_t extents) {
  return make_journal_room(&stream, step_record_bytes(stream, extents));
}

Result<void> Reservation::make_room_for_stream() {
  if (make_journal_room(nullptr, new_stream_bytes)) return {};
  return fail(ErrorCode::no_space,
              fmt::format("the journals take {} bytes, and no segment can make room for another; remove streams, drop "
                          "steps, or make a larger reservation",
                          journal_bytes()),
              "reservation " + name());
}

std::vector<std::pair<std::uint64_t, std::uint32_t>> Reservation::lendable_segments() const {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> found;
  if (!unreadable_.empty() || retiring || !makes_holes_) return found;
  const std::uint64_t bytes_min = std::max(lend_bytes_min, record_.segment_bytes / lend_share_min);
  for (std::uint32_t segment = 0; segment < space_.segment_count(); ++segment) {
    const auto lent = lent_.find(segment);
    const std::uint64_t given = lent == lent_.end() ? 0 : lent->second;
    const std::uint64_t bytes = space_.unheld(segment).total();
    if (bytes < given + bytes_min || failed_segments_.contains(segment)) continue;
    if (lent == lent_.end()) {
      const auto owner = space_.owner(segment);
      if ((owner && is_living(*owner)) || longest(space_.unheld(segment)) < bytes_min) continue;
    }
    found.emplace_back(bytes - given, segment);
  }
  return found;
}

bool Reservation::lend_segment() {
  auto candidates = lendable_segments();
  // The freest first; of those that are alike the last, as writers get the first. One that could not make room before
  // comes last.
  const auto rank = [this](const auto& candidate) {
    const auto lent = lent_.find(candidate.second);
    return std::tuple(lent == lent_.end() || lent->second > 0, candidate.first, candidate.second);
  };
  std::ranges::sort(candidates, std::greater(), rank);
  for (const auto& [bytes, segment] : candidates) {
    if (space_.owner(segment) && !lent_.contains(segment)) {
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
    less_is_coming();
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
    // The largest first: if the server dies behind it, the next one sees that there are holes.
    const auto& unheld = space_.unheld(segment).ranges();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges(unheld.begin(), unheld.end());
    std::ranges::sort(ranges, std::greater(), [](const auto& range) { return range.second; });
    for (const auto& [offset, length] : ranges) {
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
      less_is_coming();
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

std::uint64_t Reservation::room_to_leave() const {
  std::uint64_t bytes = new_stream_bytes;
  for (const auto& [name, stream] : streams_) bytes = std::max(bytes, step_record_bytes(*stream));
  return bytes;
}

void Reservation::journals_shrank() {
  if (take_back_segments()) space_changed();
}

bool Reservation::take_back_segments() {
  if (retiring || !unreadable_.empty() || lent_.empty()) return false;
  // For whatever wants room next: else segments would come and go.
  const std::uint64_t room = room_to_leave();
  // Those that hold no steps first: they give the most.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> lent;
  for (const auto& [segment, bytes] : lent_) {
    if (!failed_segments_.contains(segment)) lent.emplace_back(bytes, segment);
  }
  std::ranges::sort(lent, std::greater());
  bool any = false;
  for (const auto& [bytes, segment] : lent) {
    if (!has_journal_room(bytes + room, storage::RecordType::segments_owned)) continue;
    if (!take_back_segment(segment)) break;
    any = true;
  }
  return any;
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
      if (stream->is_worth_rolling()) (void)stream->roll_journal();
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
