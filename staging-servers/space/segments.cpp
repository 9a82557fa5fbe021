// SPDX-License-Identifier: Apache-2.0
#include "space/segments.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/log.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::server {

Segments::Segments(Device& device, storage::ReservationStore& store, const reservation::ReservationT& record)
    : device_(device),
      store_(store),
      record_(record),
      layout_(storage::layout_of(record)),
      map_(record.members.empty() ? 0 : record.members.front()->segments, record.segment_bytes) {}

std::string Segments::path(std::uint32_t segment) const {
  return store_.segment_path(record_.id, segment);
}

Result<void> Segments::check_stays() const {
  if (!retiring) return {};
  return fail(ErrorCode::not_found, "the reservation is being destroyed", "reservation " + reservation());
}

Result<Descriptor> Segments::open(std::uint32_t segment, bool writable) const {
  RETURN_IF_ERROR(check_stays());
  const std::string name = path(segment);
  Descriptor descriptor(::open(name.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (!descriptor.valid()) return system_error(errno, "cannot open a segment", name);
  return descriptor;
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

bool Segments::adopt(const Owner& owner, std::uint64_t bytes) {
  // No more than is needed: what one writer takes, no other living one can have.
  std::uint64_t adopted_bytes = 0;
  for (std::uint32_t segment = 0; segment < map_.segment_count() && adopted_bytes < std::max(bytes, space_unit_bytes);
       ++segment) {
    const auto before = map_.owner(segment);
    if (!before || before->same_group(owner) || map_.free_bytes_in(segment) == 0) continue;
    if (is_living(*before)) continue;
    // An old incarnation's process, or a child that it forked, may still be writing.
    auto unwritten = storage::nobody_writes(path(segment));
    if (!unwritten) {
      log::warning("cannot tell whether segment {} of {} is still written: {}", segment, reservation(),
                   unwritten.error().message());
      continue;
    }
    if (!*unwritten) continue;
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
  for (SpaceUser* other : users_) {
    if (!other->all_grants_known()) continue;
    journal::SegmentsLeftT left;
    for (std::uint32_t segment = 0; taken_bytes < bytes && segment < map_.segment_count(); ++segment) {
      const auto before = map_.owner(segment);
      if (!before || before->same_group(owner) || !other->owns(*before)) continue;
      if (!map_.is_whole_free(segment) || !other->state().owners.contains(segment)) continue;
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
