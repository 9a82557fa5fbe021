// SPDX-License-Identifier: Apache-2.0
// Where one remote rank may write at the moment: the extents that it was granted, with their files. The event loop
// changes it; the thread of the rank's data path looks it up. A rank may open a new path, after an interruption for
// example: what is still on its way through an earlier one is not written any more. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include <forebay/result.h>

#include "base/device.h"

namespace forebay::fabric {

class WriteWindow {
 public:
  struct Range {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };

  bool has_segment(std::uint32_t segment) const;
  /// Opened for this rank alone, so that the kernel knows that somebody may write there.
  void add_segment(std::uint32_t segment, std::shared_ptr<File> file);
  /// From now on these may be written, and nothing else. False if a write elsewhere is under way.
  bool allow_only(std::span<const Range> ranges);
  /// From now on this may be written, too.
  void allow(const Range& range);
  /// Nothing is being written.
  bool is_idle() const;

  /// A data path begins. Its number, for begin(); earlier ones may not write any more.
  std::uint64_t enter();
  /// The file to write to, until end(). Waits while an earlier path still writes. protocol if it is not allowed;
  /// disconnected if a later path has begun, or after close().
  Result<std::shared_ptr<File>> begin(std::uint64_t path, std::uint32_t segment, std::uint64_t offset,
                                      std::uint64_t length);
  void end();
  /// The rank's connection has ended: no write begins any more, and the files are closed, if one is being written to
  /// with its end.
  void close();

 private:
  /// Under mutex_.
  bool is_allowed(const Range& range) const;

  mutable std::mutex mutex_;
  std::condition_variable written_;
  // Guarded by mutex_:
  std::map<std::uint32_t, std::shared_ptr<File>> files_;
  std::map<std::uint32_t, std::map<std::uint64_t, std::uint64_t>> allowed_;  // by segment: from offset to end
  std::optional<Range> writing_;
  std::uint64_t path_ = 0;  // the newest
  bool closed_ = false;
};

}  // namespace forebay::fabric
