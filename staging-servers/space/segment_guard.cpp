// SPDX-License-Identifier: Apache-2.0
#include "space/segment_guard.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "base/log.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::server {
namespace {

constexpr std::uint64_t device_block_bytes = 512;
/// The blocks in which the file system keeps the places of a file's extents count as the file's: a 340th of it at most.
constexpr std::uint64_t tolerance_bytes_min = std::uint64_t{64} << 10;
constexpr std::uint64_t tolerance_share = 128;

Result<void> cut_file(const std::string& path, std::uint64_t bytes) {
  // Also where the size is right: what was allocated beyond it goes.
  while (::truncate(path.c_str(), static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return system_error(errno, "cannot cut what lies beyond the end of a segment", path);
  }
  return {};
}

}  // namespace

Result<SegmentGuard::Size> SegmentGuard::size_of(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return system_error(errno, "cannot be looked at", path);
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::corrupt, "is not a file", path);
  return Size{static_cast<std::uint64_t>(status.st_size),
              static_cast<std::uint64_t>(status.st_blocks) * device_block_bytes};
}

std::uint64_t SegmentGuard::tolerance_bytes() const noexcept {
  return std::max(tolerance_bytes_min, segments_.record().segment_bytes / tolerance_share);
}

std::string SegmentGuard::damaged(std::uint32_t segment, std::string what) {
  segments_.set_damaged(segment, what);
  segments_.lines.error("reservation {}: segment {} {}; steps that lie in it are damaged", segments_.reservation(),
                        segment, what);
  return what;
}

void SegmentGuard::begin() {
  for (std::uint32_t segment = 0; segment < segments_.map().segment_count(); ++segment) {
    (void)look(segment);
    note_taken(segment);
  }
}

void SegmentGuard::note_taken(std::uint32_t segment) {
  if (!segments_.is_own(segment) || !segments_.holders(segment).empty() || being_cut_.contains(segment)) return;
  if (const auto size = size_of(segments_.path(segment))) taken_[segment] = size->taken_bytes;
}

std::optional<std::string> SegmentGuard::look(std::uint32_t segment) {
  // Of another member's its server tells.
  if (segments_.retiring || !segments_.is_own(segment) || segments_.damage_of(segment) != nullptr) return std::nullopt;
  const std::uint64_t granted = segments_.record().segment_bytes;
  const auto size = size_of(segments_.path(segment));
  if (!size) {
    if (size.error().code == ErrorCode::busy) return std::nullopt;
    return damaged(segment, size.error().code == ErrorCode::not_found ? "is missing" : size.error().what);
  }
  if (size->bytes < granted)
    return damaged(segment, fmt::format("lacks the last {} of its {} bytes", granted - size->bytes, granted));
  const auto noted = taken_.find(segment);
  const std::uint64_t taken = noted == taken_.end() ? 0 : noted->second;
  // One that makes room for journals has holes.
  if (!segments_.map().is_closed(segment) && size->taken_bytes + tolerance_bytes() < std::min(taken, granted))
    return damaged(segment, fmt::format("has holes: {} of its {} bytes have lost their space",
                                        std::min(taken, granted) - size->taken_bytes, granted));
  if (size->bytes == granted && size->taken_bytes <= std::max(taken, granted) + tolerance_bytes()) return std::nullopt;
  if (being_cut_.contains(segment)) return std::nullopt;
  const std::string what =
      size->bytes > granted
          ? fmt::format("had {} bytes beyond the {} that were granted", size->bytes - granted, granted)
          : fmt::format("took {} bytes on the device beyond the {} that were granted", size->taken_bytes - granted,
                        granted);
  segments_.lines.warning("reservation {}: segment {} {}; they are cut off", segments_.reservation(), segment, what);
  being_cut_.insert(segment);
  cut(segment);
  return what;
}

void SegmentGuard::cut(std::uint32_t segment) {
  auto path = segments_.path(segment);
  const std::uint64_t bytes = segments_.record().segment_bytes;
  if (!background_) {
    cut_done(segment, cut_file(path, bytes));
    return;
  }
  background_([this, segment, bytes, path = std::move(path), &loop = loop_, alive = std::weak_ptr<const bool>(alive_)] {
    auto done = cut_file(path, bytes);
    loop.post([this, segment, alive, done = std::move(done)] {
      if (!alive.expired()) cut_done(segment, done);
    });
  });
}

void SegmentGuard::cut_done(std::uint32_t segment, const Result<void>& done) {
  being_cut_.erase(segment);
  if (!done && !segments_.retiring) segments_.lines.error("{}", done.error().message());
  if (done) note_taken(segment);
}

bool SegmentGuard::mend() {
  if (segments_.retiring || !segments_.all_known()) return false;
  bool any = false;
  // A copy: what is mended goes.
  const auto all_damaged = segments_.damaged();
  for (const auto& [segment, what] : all_damaged) {
    const std::uint64_t bytes = segments_.record().segment_bytes;
    if (!segments_.is_own(segment)) continue;
    if (segments_.map().unheld(segment).total() != bytes || segments_.has_failed(segment)) continue;
    const std::string path = segments_.path(segment);
    const auto size = size_of(path);
    const bool missing = !size && size.error().code == ErrorCode::not_found;
    if (!missing && !segments_.nobody_writes(segment)) continue;
    auto file = segments_.open_file(segment, missing ? OpenMode::create_new : OpenMode::read_write);
    auto mended = file ? (*file)->allocate(bytes) : fail(std::move(file.error()));
    if (mended) mended = cut_file(path, bytes);
    if (!mended) {
      segments_.lines.warning("segment {} of {} cannot be mended: {}", segment, segments_.reservation(),
                              mended.error().message());
      continue;
    }
    segments_.set_mended(segment);
    note_taken(segment);
    segments_.lines.info("reservation {}: segment {} is whole again", segments_.reservation(), segment);
    any = true;
  }
  return any;
}

}  // namespace forebay::server
