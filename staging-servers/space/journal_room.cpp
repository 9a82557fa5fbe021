// SPDX-License-Identifier: Apache-2.0
#include "space/journal_room.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <system_error>
#include <tuple>

#include <fmt/format.h>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "space/space_queue.h"

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

std::uint64_t longest(const RangeSet& ranges) {
  std::uint64_t bytes = 0;
  for (const auto& [offset, length] : ranges.ranges()) bytes = std::max(bytes, length);
  return bytes;
}

}  // namespace

JournalRoom::JournalRoom(Segments& segments, storage::ReservationStore& store, SpaceQueue& queue)
    : segments_(segments), map_(segments.map()), store_(store), queue_(queue) {}

storage::JournalOptions JournalRoom::options() {
  storage::JournalOptions options;
  options.growth_bytes = std::min(options.growth_bytes, reserve_bytes() / 4);
  options.may_take = [this](std::uint64_t bytes, storage::RecordType type, bool ahead) {
    // Room that is not needed yet takes nothing from anybody.
    if (ahead && !recovering_) return has_room(bytes, storage::RecordType::segments_owned);
    return find_room(bytes, type);
  };
  return options;
}

std::uint64_t JournalRoom::taken_bytes() const {
  std::uint64_t bytes = 0;
  for (const SpaceUser* user : segments_.users()) bytes += user->journal_in_room().size_bytes();
  return bytes;
}

std::uint64_t JournalRoom::lent_bytes() const noexcept {
  std::uint64_t lent = 0;
  for (const auto& [segment, bytes] : lent_) lent += bytes;
  return lent;
}

std::uint64_t JournalRoom::unreadable_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [stream, why] : segments_.unreadable_streams) {
    std::error_code error;
    const std::string folder = store_.stream_directory(segments_.record().id, stream);
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      struct stat status{};
      if (::stat(entry->path().c_str(), &status) == 0)
        bytes += static_cast<std::uint64_t>(status.st_blocks) * stat_block_bytes;
    }
  }
  return bytes;
}

std::uint64_t JournalRoom::bytes_beside_segments() const {
  return fixed_bytes + segments_.users().size() * stream_folder_bytes + taken_bytes() + unreadable_bytes();
}

std::uint64_t JournalRoom::kept_back_from(storage::RecordType type) const noexcept {
  if (type == storage::RecordType::segments_owned) return reserve_bytes() / share_for_commits;
  if (type == storage::RecordType::step_committed) return reserve_bytes() / share_for_others;
  return 0;
}

std::uint64_t JournalRoom::lacking_bytes(std::uint64_t bytes, storage::RecordType type) const {
  const std::uint64_t wanted = bytes_beside_segments() + bytes + kept_back_from(type);
  return wanted - std::min(wanted, reserve_bytes() + lent_bytes());
}

bool JournalRoom::has_room(std::uint64_t bytes, storage::RecordType type) const {
  return lacking_bytes(bytes, type) == 0;
}

bool JournalRoom::find_room(std::uint64_t bytes, storage::RecordType type) {
  // What is free is known once all streams have been recovered.
  if (recovering_) return true;
  const std::uint64_t lacking = lacking_bytes(bytes, type);
  if (lacking == 0) return true;
  // Nothing is emptied in vain, as far as that can be told.
  std::uint64_t lendable = 0;
  for (const auto& [segment_bytes, segment] : lendable_segments()) lendable += segment_bytes;
  if (lendable < lacking) return false;
  const std::uint64_t lent_before = lent_bytes();
  while (!has_room(bytes, type)) {
    if (lend_segment()) continue;
    // Whoever is served in vain is not to be served again for what was emptied in vain.
    if (take_back_segments() && lent_bytes() < lent_before) queue_.changed(SpaceChange::more);
    return false;
  }
  return true;
}

bool JournalRoom::has_room_for_step(const JournalInRoom& journal) const {
  const std::uint64_t bytes = journal.step_record_bytes();
  return journal.spare_bytes() >= bytes || has_room(bytes, storage::RecordType::segments_owned);
}

bool JournalRoom::has_plenty(const JournalInRoom& journal) const {
  return has_room(std::max(journal_room_plenty, journal.step_record_bytes()), storage::RecordType::segments_owned);
}

bool JournalRoom::roll_others(const JournalInRoom& asker) {
  bool any = false;
  for (SpaceUser* user : segments_.users()) {
    JournalInRoom& other = user->journal_in_room();
    if (&other != &asker && other.is_worth_rolling() && other.roll()) any = true;
  }
  return any;
}

bool JournalRoom::make_room(JournalInRoom* asker, std::uint64_t bytes) {
  constexpr auto type = storage::RecordType::segments_owned;
  const auto finds_room = [&] { return (asker != nullptr && asker->spare_bytes() >= bytes) || find_room(bytes, type); };
  if (finds_room()) return true;
  if (asker != nullptr && asker->is_worth_rolling(true) && asker->roll() && finds_room()) return true;
  for (SpaceUser* user : segments_.users()) {
    JournalInRoom& other = user->journal_in_room();
    if (&other != asker && other.is_worth_rolling() && other.roll() && finds_room()) return true;
  }
  if (!makes_holes_ || segments_.retiring) return false;
  // Emptied segments of groups that write go by a record, which no journal takes while it takes another.
  const Owner nobody{.stream = std::numeric_limits<std::uint64_t>::max()};
  return segments_.take_emptied(nobody, segments_.record().segment_bytes) && finds_room();
}

bool JournalRoom::make_room_for_step(JournalInRoom& journal, std::size_t extents) {
  return make_room(&journal, journal.step_record_bytes(extents));
}

Result<void> JournalRoom::make_room_for_stream() {
  if (make_room(nullptr, new_stream_bytes)) return {};
  return fail(ErrorCode::no_space,
              fmt::format("the journals take {}, and no segment can make room for another; remove streams, drop "
                          "steps, or create a larger reservation",
                          size_text(taken_bytes())),
              "reservation " + segments_.reservation());
}

std::vector<std::pair<std::uint64_t, std::uint32_t>> JournalRoom::lendable_segments() const {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> found;
  if (!segments_.all_known() || segments_.retiring || !makes_holes_) return found;
  const std::uint64_t bytes_min = std::max(lend_bytes_min, segments_.record().segment_bytes / lend_share_min);
  for (std::uint32_t segment = 0; segment < map_.segment_count(); ++segment) {
    const auto lent = lent_.find(segment);
    const std::uint64_t given = lent == lent_.end() ? 0 : lent->second;
    const std::uint64_t bytes = map_.unheld(segment).total();
    if (bytes < given + bytes_min || segments_.is_unusable(segment) || !segments_.is_own(segment)) continue;
    if (lent == lent_.end()) {
      const auto owner = map_.owner(segment);
      if ((owner && segments_.is_living(*owner)) || longest(map_.unheld(segment)) < bytes_min) continue;
    }
    found.emplace_back(bytes - given, segment);
  }
  return found;
}

bool JournalRoom::lend_segment() {
  auto candidates = lendable_segments();
  // The freest first; of those that are alike the last, as writers get the first. One that could not make room before
  // comes last.
  const auto rank = [this](const auto& candidate) {
    const auto lent = lent_.find(candidate.second);
    return std::tuple(lent == lent_.end() || lent->second > 0, candidate.first, candidate.second);
  };
  std::ranges::sort(candidates, std::greater(), rank);
  for (const auto& [bytes, segment] : candidates) {
    if (map_.owner(segment) && !lent_.contains(segment) && !segments_.nobody_writes(segment)) continue;
    if (!free_segment(segment)) {
      if (makes_holes_) continue;
      return false;
    }
    fail_point("server.lend.after_free");
    // Where steps lie in it still, whoever gets it next is to ask again whether it is written.
    map_.set_owner(segment, map_.is_whole_free(segment) ? std::nullopt : std::optional(unknown_owner));
    map_.close(segment);
    log::info("reservation {}: segment {} makes room for journals, which take {} bytes", segments_.reservation(),
              segment, taken_bytes());
    queue_.changed(SpaceChange::less);
    return true;
  }
  return false;
}

bool JournalRoom::free_segment(std::uint32_t segment) {
  const auto owner = map_.owner(segment);
  // What lies there, or will, is not known.
  if (!segments_.all_known() || (owner && segments_.is_living(*owner))) return false;
  const auto free_all = [&]() -> Result<void> {
    ASSIGN_OR_RETURN(auto file, segments_.open_file(segment, OpenMode::read_write));
    // The largest first: if the server dies behind it, the next one sees that there are holes.
    const auto& unheld = map_.unheld(segment).ranges();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges(unheld.begin(), unheld.end());
    std::ranges::sort(ranges, std::greater(), [](const auto& range) { return range.second; });
    for (const auto& [offset, length] : ranges) {
      RETURN_IF_ERROR(file->free_space(offset, length));
    }
    return {};
  };
  if (auto freed = free_all(); !freed) {
    log::warning("segment {} of {} cannot make room for journals: {}", segment, segments_.reservation(),
                 freed.error().message());
    makes_holes_ = freed.error().code != ErrorCode::unsupported;
    // Some of it may be gone, so nobody may write there before it is taken back.
    if (makes_holes_) {
      map_.close(segment);
      lent_.emplace(segment, 0);
      queue_.changed(SpaceChange::less);
    }
    return false;
  }
  lent_[segment] = map_.unheld(segment).total();
  return true;
}

bool JournalRoom::take_back_segment(std::uint32_t segment) {
  auto file = segments_.open_file(segment, OpenMode::read_write);
  auto allocated = file ? (*file)->allocate(segments_.record().segment_bytes) : fail(std::move(file.error()));
  if (!allocated) {
    log::warning("segment {} of {} cannot be taken back from the journals: {}", segment, segments_.reservation(),
                 allocated.error().message());
    // A part of it may have its space again, which is counted as the journals'.
    (void)free_segment(segment);
    return false;
  }
  fail_point("server.lend.after_take_back");
  lent_.erase(segment);
  map_.reopen(segment);
  log::info("reservation {}: journals leave segment {} again", segments_.reservation(), segment);
  return true;
}

bool JournalRoom::regain_segments() {
  if (lent_.empty()) return false;
  const std::uint64_t free_before = map_.free_bytes();
  // One whose steps have gone since it was closed may make all the room that several make.
  const auto emptied = std::ranges::max_element(lent_, {}, [this](const auto& entry) {
    return map_.unheld(entry.first).total() - std::min(map_.unheld(entry.first).total(), entry.second);
  });
  if (map_.unheld(emptied->first).total() >= emptied->second + lend_bytes_min) (void)free_segment(emptied->first);
  shrank();
  return map_.free_bytes() > free_before;
}

std::uint64_t JournalRoom::room_to_leave() const {
  std::uint64_t bytes = new_stream_bytes;
  for (const SpaceUser* user : segments_.users()) bytes = std::max(bytes, user->journal_in_room().step_record_bytes());
  return bytes;
}

void JournalRoom::shrank() {
  if (take_back_segments()) queue_.changed(SpaceChange::more);
}

bool JournalRoom::take_back_segments() {
  if (segments_.retiring || !segments_.all_known() || lent_.empty()) return false;
  // For whatever wants room next: else segments would come and go.
  const std::uint64_t room = room_to_leave();
  // Those that hold no steps first: they give the most.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> lent;
  for (const auto& [segment, bytes] : lent_) {
    if (!segments_.is_unusable(segment)) lent.emplace_back(bytes, segment);
  }
  std::ranges::sort(lent, std::greater());
  bool any = false;
  for (const auto& [bytes, segment] : lent) {
    if (!has_room(bytes + room, storage::RecordType::segments_owned)) continue;
    if (!take_back_segment(segment)) break;
    any = true;
  }
  return any;
}

void JournalRoom::learn_lent_segments() {
  for (std::uint32_t segment = 0; segment < map_.segment_count(); ++segment) {
    struct stat status{};
    const std::string path = segments_.path(segment);
    if (!segments_.is_own(segment) || segments_.is_unusable(segment) || ::stat(path.c_str(), &status) != 0) continue;
    const std::uint64_t taken = static_cast<std::uint64_t>(status.st_blocks) * stat_block_bytes;
    if (taken >= segments_.record().segment_bytes) continue;
    map_.close(segment);
    lent_[segment] = segments_.record().segment_bytes - taken;
    // None of ours made a hole where a writer may come back, and what it holds there is not known yet.
    if (const auto owner = map_.owner(segment); owner && segments_.is_living(*owner)) (void)take_back_segment(segment);
  }
}

void JournalRoom::end_recovery() {
  recovering_ = false;
  learn_lent_segments();
  if (lends_segments()) {
    // Its last server may have died before it rolled those that tell of steps which are gone.
    for (SpaceUser* user : segments_.users()) {
      JournalInRoom& journal = user->journal_in_room();
      if (journal.is_worth_rolling()) (void)journal.roll();
    }
  }
  shrank();
  // Of a server that did not hold its journals to anything, or died before.
  while (!has_room(0, storage::RecordType::checkpoint)) {
    if (!lend_segment()) {
      log::warning("reservation {}: the journals take {} bytes, more than is kept for them, and no segment is free",
                   segments_.reservation(), taken_bytes());
      break;
    }
  }
}

}  // namespace forebay::server
