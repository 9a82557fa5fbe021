// SPDX-License-Identifier: Apache-2.0
#include "fabric/write_window.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/bounds.h"

namespace forebay::fabric {

bool WriteWindow::has_segment(std::uint32_t segment) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(segment);
}

void WriteWindow::add_segment(std::uint32_t segment, std::shared_ptr<File> file) {
  const std::lock_guard lock(mutex_);
  files_[segment] = std::move(file);
}

namespace {

/// Neighbours become one, so that a write may span two grants.
void join(std::map<std::uint64_t, std::uint64_t>& in_segment, std::uint64_t begin, std::uint64_t end) {
  auto next = in_segment.upper_bound(begin);
  if (next != in_segment.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != in_segment.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = in_segment.erase(next);
  }
  in_segment.emplace(begin, end);
}

}  // namespace

bool WriteWindow::allow_only(std::span<const Range> ranges) {
  std::map<std::uint32_t, std::map<std::uint64_t, std::uint64_t>> allowed;
  for (const Range& range : ranges) join(allowed[range.segment], range.offset, range.offset + range.length);
  const std::lock_guard lock(mutex_);
  allowed_.swap(allowed);
  return !writing_ || is_allowed(*writing_);
}

void WriteWindow::allow(const Range& range) {
  const std::lock_guard lock(mutex_);
  if (!closed_) join(allowed_[range.segment], range.offset, range.offset + range.length);
}

bool WriteWindow::is_idle() const {
  const std::lock_guard lock(mutex_);
  return !writing_;
}

bool WriteWindow::is_allowed(const Range& range) const {
  const auto ranges = allowed_.find(range.segment);
  const auto end = checked_add(range.offset, range.length);
  if (ranges == allowed_.end() || !end) return false;
  const auto next = ranges->second.upper_bound(range.offset);
  return next != ranges->second.begin() && std::prev(next)->second >= *end;
}

std::uint64_t WriteWindow::enter() {
  const std::lock_guard lock(mutex_);
  return ++path_;
}

Result<std::shared_ptr<File>> WriteWindow::begin(std::uint64_t path, std::uint32_t segment, std::uint64_t offset,
                                                 std::uint64_t length) {
  std::unique_lock lock(mutex_);
  // A path has one write at a time, so what is under way is an earlier one's. What comes later must stay.
  written_.wait(lock, [&] { return !writing_ || path != path_ || closed_; });
  if (closed_) return fail(ErrorCode::disconnected, "the client's connection has ended");
  if (path != path_) return fail(ErrorCode::disconnected, "the client has opened another data path");
  const auto file = files_.find(segment);
  const Range range{segment, offset, length};
  if (file == files_.end() || !is_allowed(range)) {
    return fail(ErrorCode::protocol, "the client wrote where it was granted no space",
                "segment " + std::to_string(segment) + " @ " + std::to_string(offset));
  }
  writing_ = range;
  return file->second;
}

void WriteWindow::end() {
  std::map<std::uint32_t, std::shared_ptr<File>> files;  // closed without the lock
  {
    const std::lock_guard lock(mutex_);
    writing_.reset();
    if (closed_) files.swap(files_);
  }
  written_.notify_all();
}

void WriteWindow::close() {
  std::map<std::uint32_t, std::shared_ptr<File>> files;  // closed without the lock
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    allowed_.clear();
    if (!writing_) files.swap(files_);
  }
  written_.notify_all();
}

}  // namespace forebay::fabric
