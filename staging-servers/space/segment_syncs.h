// SPDX-License-Identifier: Apache-2.0
// Syncs of a reservation's segments, which streams ask for side by side. After one that failed, the kernel takes pages
// for written that are not, whoever wrote them, and a later one that succeeds says nothing. So the syncs of one segment
// follow one another, and all that come after the one that failed fail as well.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <forebay/result.h>

#include "base/device.h"

namespace forebay::server {

/// Thread-safe. The Device outlives it.
class SegmentSyncs {
 public:
  struct Failure {
    std::uint32_t segment = 0;
    Error error;
    bool begun = false;  ///< what the disk has answered, which is final
  };
  using Paths = std::vector<std::pair<std::uint32_t, std::string>>;

  explicit SegmentSyncs(Device& device) : device_(device) {}

  /// Syncs them one after another, until one fails.
  std::optional<Failure> sync(const Paths& segments);

 private:
  std::optional<Failure> sync(std::uint32_t segment, const std::string& path);

  Device& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint32_t> under_way_;      // guarded by mutex_
  std::map<std::uint32_t, Error> failed_;  // guarded by mutex_: what the disk has answered
};

}  // namespace forebay::server
