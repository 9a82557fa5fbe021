// SPDX-License-Identifier: Apache-2.0
#include "space/segment_syncs.h"

namespace forebay::server {

std::optional<SegmentSyncs::Failure> SegmentSyncs::sync(const Paths& segments) {
  // However many there are, one descriptor will do.
  for (const auto& [segment, path] : segments) {
    if (auto failure = sync(segment, path)) return failure;
  }
  return std::nullopt;
}

std::optional<SegmentSyncs::Failure> SegmentSyncs::sync(std::uint32_t segment, const std::string& path) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !under_way_.contains(segment); });
  if (const auto failed = failed_.find(segment); failed != failed_.end()) return Failure{segment, failed->second, true};
  under_way_.insert(segment);
  lock.unlock();
  // Opened for reading, which is enough for a sync and does not look like a writer to nobody_writes().
  auto file = device_.open(path, OpenMode::read);
  const auto synced = file ? (*file)->sync() : fail(std::move(file.error()));
  lock.lock();
  under_way_.erase(segment);
  const bool begun = file.has_value();
  if (!synced && begun) failed_.emplace(segment, synced.error());
  changed_.notify_all();
  if (synced) return std::nullopt;
  return Failure{segment, synced.error(), begun};
}

}  // namespace forebay::server
