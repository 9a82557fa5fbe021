// SPDX-License-Identifier: Apache-2.0
// Which steps this life of the server has committed lately: their bytes can hardly have been damaged since their writer
// took the checksums, so readers that keep up need not check them.
#pragma once

#include <cstdint>
#include <deque>

#include "readers/followed_stream.h"

namespace forebay::server {

/// Bounded: one entry for each second in which there was a commit.
class RecentCommits {
 public:
  static constexpr std::int64_t fresh_ns = 10'000'000'000;

  /// To be called for each commit, in order. `now_ns` is of the monotonic clock.
  void note(const StepKey& key, std::int64_t now_ns);
  /// True if the step was noted less than ten seconds ago. One within a second of that may count as older.
  bool has(const StepKey& key, std::int64_t now_ns) const;

 private:
  struct Commits {
    StepKey first;
    std::int64_t first_ns = 0;
  };
  static constexpr std::int64_t together_ns = 1'000'000'000;

  std::deque<Commits> commits_;  ///< of one epoch
  std::uint64_t next_step_ = 0;
};

}  // namespace forebay::server
