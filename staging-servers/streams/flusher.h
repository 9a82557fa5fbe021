// SPDX-License-Identifier: Apache-2.0
// Makes committed steps durable in the background: syncs their segments, then appends the watermark to the journal and
// syncs that. A failed sync is final: the stream becomes failed and the watermark stops.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "loop/event_loop.h"
#include "space/space_map.h"

namespace forebay::server {

class Stream;

class Flusher {
 public:
  explicit Flusher(Stream& stream);
  ~Flusher();

  std::uint64_t durable_next() const noexcept { return durable_next_; }

  /// There is something to flush. `soon`: somebody waits for it; otherwise it may wait to be dropped first.
  void request(bool soon);
  /// Space that comes free when the round at hand is through.
  std::uint64_t bytes_in_release() const;
  /// The stream is no more: that space, which nothing in its journal refers to any longer.
  std::vector<std::vector<Extent>> take_releases();
  /// The steps from `first` on are gone: the watermark goes back.
  void rewind(std::uint64_t first);
  /// Everything, in the calling thread. For a clean shutdown.
  Result<void> flush_now();

 private:
  struct Job;
  struct SegmentFile;
  struct SyncFailure;
  using SegmentFiles = std::vector<SegmentFile>;
  static Result<SegmentFiles> unsynced_segments(Stream& stream);
  static std::optional<SyncFailure> sync_all(SegmentFiles& files);
  void start();
  void segments_synced(const std::shared_ptr<Job>& job, const std::optional<SyncFailure>& failure);
  void sync_failed(const SyncFailure& failure);
  void journal_synced(const std::shared_ptr<Job>& job, Result<void> result);
  /// The round did not come to its end: what it was to free stays taken.
  void give_up(Job& job);
  void retry_later();
  bool nothing_to_do() const;

  Stream& stream_;
  std::uint64_t durable_next_ = 0;
  std::uint64_t rewinds_ = 0;
  std::optional<EventLoop::TimerId> timer_;
  bool timer_soon_ = false;
  std::shared_ptr<Job> running_;
  bool again_ = false;
  bool again_soon_ = false;
  /// Outlives the flusher in callbacks that come back from the worker.
  std::shared_ptr<bool> alive_;
};

}  // namespace forebay::server
