// SPDX-License-Identifier: Apache-2.0
// Makes committed steps durable in the background: syncs their segments, then appends the watermark to the journal and
// syncs that. A failed sync is final: the stream becomes failed and the watermark stops. One that cannot begin, for
// want of a descriptor or of memory, is tried again. Space of dropped durable steps comes free with the sync that makes
// their drop durable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <forebay/result.h>

#include "loop/event_loop.h"
#include "space/other_members.h"
#include "space/segment_syncs.h"
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
  /// Space of a dropped durable step: free once the journal that says so is synced. `soon`: somebody waits for space.
  void release_when_synced(std::vector<Extent> extents, bool soon);
  /// Somebody waits for space now.
  void hurry_releases();
  /// The stream is no more: nothing in its journal refers to that space any longer.
  void release_all();
  std::uint64_t bytes_to_release() const;
  /// Appends that space.
  void list_to_release(std::vector<Extent>& extents) const;
  /// The steps from `first` on are gone: the watermark goes back.
  void rewind(std::uint64_t first);
  /// Everything, in the calling thread. For a clean shutdown.
  Result<void> flush_now();

 private:
  struct Job;
  struct SyncFailure;
  /// Those of this server, and those of other members.
  struct Unsynced {
    SegmentSyncs::Paths own;
    std::set<std::uint32_t> others;
  };
  static Result<Unsynced> unsynced_segments(Stream& stream, std::uint64_t end);
  static std::optional<SyncFailure> sync_all(SegmentSyncs& syncs, const SegmentSyncs::Paths& segments);
  void start();
  /// Once both this server's segments and those of other members are synced, or one of them failed.
  void own_synced(const std::shared_ptr<Job>& job, std::optional<SyncFailure> failure);
  void others_synced(const std::shared_ptr<Job>& job, Result<std::map<std::uint16_t, SyncedMember>> synced);
  /// The first step that is not durable and has a part on another member; next_step if none has.
  std::uint64_t first_elsewhere() const;
  void segments_synced(const std::shared_ptr<Job>& job, const std::optional<SyncFailure>& failure);
  void sync_failed(const SyncFailure& failure);
  /// Nothing was asked of the disk.
  void could_not_begin(const Error& error);
  void journal_synced(const std::shared_ptr<Job>& job, Result<void> result);
  /// The round did not come to its end: what it was to free stays taken.
  void give_up(Job& job);
  void retry_later();
  bool nothing_to_do() const;
  void release(std::vector<std::vector<Extent>> releases);

  Stream& stream_;
  std::uint64_t durable_next_ = 0;
  std::uint64_t rewinds_ = 0;
  std::vector<std::vector<Extent>> releases_;  ///< those that the next round makes free, step by step
  std::optional<EventLoop::TimerId> timer_;
  bool timer_soon_ = false;
  std::shared_ptr<Job> running_;
  bool again_ = false;
  bool again_soon_ = false;
  /// Outlives the flusher in callbacks that come back from the worker.
  std::shared_ptr<bool> alive_;
};

}  // namespace forebay::server
