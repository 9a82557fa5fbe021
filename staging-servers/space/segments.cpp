// SPDX-License-Identifier: Apache-2.0
#include "space/segments.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include <fmt/format.h>

#include "base/descriptor_reserve.h"
#include "base/log.h"
#include "base/return_error.h"
#include "base/size_text.h"
#include "base/system_error.h"

namespace forebay::server {

Segments::Segments(Device& device, storage::ReservationStore& store, const reservation::ReservationT& record,
                   std::uint16_t own_member)
    : device_(device),
      store_(store),
      record_(record),
      own_member_(own_member),
      layout_(storage::layout_of(record)),
      map_(layout_.segment_count(), record.segment_bytes),
      syncs_(std::make_shared<SegmentSyncs>(device)) {}

std::string Segments::free_while_away_text() const {
  std::uint64_t bytes = 0;
  for (std::uint32_t segment = 0; segment < map_.segment_count(); ++segment) {
    if (is_away(segment)) bytes += map_.unheld(segment).total();
  }
  if (bytes == 0 || others_ == nullptr) return "";
  const std::string* const first = others_->absence(*away_.begin());
  return fmt::format(", and {} where it cannot be used now{}", size_text(bytes),
                     first == nullptr ? "" : " (" + *first + ")");
}

void Segments::set_away(std::uint16_t member, bool away) {
  if (away ? !away_.insert(member).second : away_.erase(member) == 0) return;
  for (std::uint32_t segment = 0; segment < map_.segment_count(); ++segment) {
    if (layout_.member_of(segment) != member) continue;
    if (away) {
      map_.close(segment);
    } else if (!is_unusable(segment)) {
      map_.reopen(segment);
    }
  }
}

std::string Segments::path(std::uint32_t segment) const {
  return store_.segment_path(record_.id, segment);
}

Result<void> Segments::check_stays() const {
  if (!retiring) return {};
  return fail(ErrorCode::not_found, "the reservation is being destroyed", "reservation " + reservation());
}

namespace {

bool is_trusted_by_all(uid_t user) {
  static const uid_t own = ::geteuid();
  return user == 0 || user == own;
}

Result<Descriptor> open_anew(const std::string& path, int flags) {
  Descriptor descriptor(::open(path.c_str(), flags | O_CLOEXEC));
  if (!descriptor.valid()) return system_error(errno, "cannot open a segment", path);
  if (is_in_reserve(descriptor.get())) return system_error(EMFILE, "cannot open a segment for a client", path);
  return descriptor;
}

}  // namespace

Result<Descriptor> Segments::open_to_read(std::uint32_t segment) const {
  RETURN_IF_ERROR(check_stays());
  return open_anew(path(segment), O_RDONLY);
}

Result<Descriptor> Segments::open_to_write(std::uint32_t segment, uid_t user) {
  RETURN_IF_ERROR(check_stays());
  ASSIGN_OR_RETURN(auto descriptor, open_anew(path(segment), O_RDWR));
  holders_[segment].insert(user);
  return descriptor;
}

const Segments::Users& Segments::holders(std::uint32_t segment) const {
  static const Users nobody;
  const auto found = holders_.find(segment);
  return found == holders_.end() ? nobody : found->second;
}

bool Segments::is_held_only_by(std::uint32_t segment, const Users& users) const {
  return std::ranges::all_of(holders(segment),
                             [&](uid_t holder) { return is_trusted_by_all(holder) || users.contains(holder); });
}

bool Segments::is_held_only_by(std::uint32_t segment, uid_t user) const {
  return std::ranges::all_of(holders(segment),
                             [user](uid_t holder) { return is_trusted_by_all(holder) || holder == user; });
}

bool Segments::may_map(std::uint32_t segment, uid_t user) {
  if (is_held_only_by(segment, user)) return true;
  const auto owner = map_.owner(segment);
  if (owner && is_living(*owner)) return false;
  return is_own(segment) ? nobody_writes(segment) : others_ != nullptr && others_->is_unwritten(segment);
}

bool Segments::nobody_writes(std::uint32_t segment) {
  if (!is_own(segment)) {
    if (others_ == nullptr || !others_->nobody_writes(segment)) return false;
    holders_.erase(segment);
    return true;
  }
  const auto unwritten = storage::nobody_writes(path(segment));
  if (!unwritten) {
    log::warning("cannot tell whether segment {} of {} is still written: {}", segment, reservation(),
                 unwritten.error().message());
  }
  if (!unwritten || !*unwritten) return false;
  holders_.erase(segment);
  return true;
}

void Segments::set_damaged(std::uint32_t segment, std::string what) {
  damaged_.insert_or_assign(segment, std::move(what));
  if (!map_.is_closed(segment)) map_.close(segment);
}

void Segments::set_mended(std::uint32_t segment) {
  damaged_.erase(segment);
  map_.set_owner(segment, std::nullopt);
  map_.reopen(segment);
}

const std::string* Segments::damage_of(std::uint32_t segment) const {
  const auto found = damaged_.find(segment);
  return found == damaged_.end() ? nullptr : &found->second;
}

Result<std::unique_ptr<File>> Segments::open_for_client(std::uint32_t segment, OpenMode mode) const {
  ASSIGN_OR_RETURN(auto file, open_file(segment, mode));
  if (file->descriptor() >= 0 && is_in_reserve(file->descriptor()))
    return system_error(EMFILE, "cannot open a segment for a client", path(segment));
  return file;
}

Result<std::shared_ptr<const File>> Segments::shared_to_read(std::uint32_t segment) const {
  auto& known = read_files_[segment];
  if (auto file = known.lock()) return file;
  ASSIGN_OR_RETURN(std::shared_ptr<const File> file, open_for_client(segment, OpenMode::read));
  known = file;
  return file;
}

Result<std::unique_ptr<File>> Segments::open_file(std::uint32_t segment, OpenMode mode) const {
  return device_.open(path(segment), mode);
}

void Segments::add(SpaceUser& user) {
  const auto place = std::ranges::upper_bound(users_, user.path(), {}, [](const auto* other) { return other->path(); });
  users_.insert(place, &user);
}

void Segments::remove(SpaceUser& user) {
  std::erase(users_, &user);
}

bool Segments::is_living(const Owner& owner) const {
  return std::ranges::any_of(users_, [&](const SpaceUser* user) { return user->owns(owner); });
}

bool Segments::adopt(const Owner& owner, std::uint64_t bytes, bool at_home) {
  const auto asker = std::ranges::find_if(users_, [&](const SpaceUser* user) { return user->owns(owner); });
  const Users writers = asker == users_.end() ? Users() : (*asker)->writing_users();
  const bool all_trusted = std::ranges::all_of(writers, is_trusted_by_all);
  // No more than is needed: what one writer takes, no other living one can have.
  std::uint64_t adopted_bytes = 0;
  const std::uint64_t enough = std::max(bytes, space_unit_bytes);
  // Those of other members first, which answer later, so that they are asked also where this one has enough.
  const std::uint32_t own_end = layout_.segments_of(own_member_).second;
  for (std::uint32_t i = 0; i < map_.segment_count() && adopted_bytes < enough; ++i) {
    const std::uint32_t segment = (own_end + i) % map_.segment_count();
    const auto before = map_.owner(segment);
    if (!before || before->same_group(owner) || map_.free_bytes_in(segment) == 0) continue;
    if (at_home && !is_own(segment)) continue;
    if (is_living(*before)) continue;
    if (!all_trusted && std::ranges::any_of(users_, [&](const SpaceUser* user) {
          return user->is_read_by_others_in(segment, writers);
        }))
      continue;
    // An old incarnation's process, or a child that it forked, may still be writing.
    if (!nobody_writes(segment)) continue;
    if (map_.is_whole_free(segment)) {
      map_.set_owner(segment, std::nullopt);
    } else {
      map_.set_owner(segment, owner);
    }
    adopted_bytes += map_.free_bytes_in(segment);
  }
  if (adopted_bytes >= bytes) return true;
  return take_emptied(owner, bytes - adopted_bytes) || adopted_bytes > 0;
}

bool Segments::take_emptied(const Owner& owner, std::uint64_t bytes) {
  std::uint64_t taken_bytes = 0;
  if (map_.free_bytes() < bytes) return false;
  const auto asker = std::ranges::find_if(users_, [&](const SpaceUser* user) { return user->owns(owner); });
  const Users writers = asker == users_.end() ? Users() : (*asker)->writing_users();
  for (SpaceUser* other : users_) {
    if (!other->all_grants_known()) continue;
    journal::SegmentsLeftT left;
    for (std::uint32_t segment = 0; taken_bytes < bytes && segment < map_.segment_count(); ++segment) {
      const auto before = map_.owner(segment);
      if (!before || before->same_group(owner) || !other->owns(*before)) continue;
      if (!map_.is_whole_free(segment) || !other->state().owners.contains(segment)) continue;
      // There the other group has windows, which end with it.
      if (!is_own(segment)) continue;
      if (asker != users_.end() && !is_held_only_by(segment, writers)) continue;
      left.segments.push_back(segment);
      taken_bytes += record_.segment_bytes;
    }
    if (left.segments.empty()) continue;
    // In the journal before another stream has them there: after a crash the group that comes back must not think so
    // too.
    const std::vector<std::uint32_t> segments = left.segments;
    if (!other->note_left(std::move(left))) continue;
    for (const std::uint32_t segment : segments) map_.set_owner(segment, std::nullopt);
  }
  return taken_bytes > 0;
}

bool Segments::set_failed(std::uint32_t segment) {
  if (!failed_.insert(segment).second) return false;
  map_.close(segment);
  return true;
}

std::uint64_t Segments::failed_bytes() const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t segment : failed_) bytes += map_.unheld(segment).total();
  return bytes;
}

}  // namespace forebay::server
