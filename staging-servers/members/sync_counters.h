// SPDX-License-Identifier: Apache-2.0
// What tells an old copy of a member, or of a home, from what it should be: counters of syncs in a small file of the
// reservation's folder. See "Members" in docs/formats/reservation.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <forebay/result.h>

#include "base/device.h"
#include "base/limited_log.h"
#include "loop/event_loop.h"
#include "loop/worker.h"

namespace forebay::server {

/// So many of them; zeros if there is no such file. corrupt if it is not what was stored.
Result<std::vector<std::uint64_t>> load_sync_counters(Device& device, const std::string& folder, std::size_t count);

/// On stable storage when it returns. Always as many as before. busy if nothing was begun.
Result<void> store_sync_counters(Device& device, const std::string& folder, std::span<const std::uint64_t> counters);

/// The counters in the file, which are raised one write after another, whatever comes meanwhile together. Used in the
/// loop.
class SyncCounters {
 public:
  struct Services {
    EventLoop& loop;
    Device& device;
    Worker& worker;
  };
  /// `stored`: what is in the file, or counts as if it were.
  SyncCounters(const Services& services, std::string folder, std::vector<std::uint64_t> stored)
      : services_(services), folder_(std::move(folder)), stored_(stored), wanted_(std::move(stored)) {}
  ~SyncCounters();
  SyncCounters(const SyncCounters&) = delete;
  SyncCounters& operator=(const SyncCounters&) = delete;

  std::uint64_t stored(std::size_t line) const { return stored_.at(line); }
  /// Calls `done` once that much is stored, or cannot be, which the log says; also if it was before.
  using Done = std::function<void(const Result<void>&)>;
  void raise(std::size_t line, std::uint64_t counter, Done done = nullptr);

 private:
  void store();

  const Services services_;
  const std::string folder_;
  std::vector<std::uint64_t> stored_;
  std::vector<std::uint64_t> wanted_;
  std::vector<Done> waiting_;  ///< for what is wanted and is not being written yet
  bool runs_ = false;
  log::Limited lines_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace forebay::server
