// SPDX-License-Identifier: Apache-2.0
// The time after a restart of the server in which the ranks of a group come back. Meanwhile a request whose answer may
// depend on what other ranks still hold has to wait.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "loop/event_loop.h"

namespace forebay::server {

class GroupReturn {
 public:
  /// Outlives it.
  explicit GroupReturn(EventLoop& loop) noexcept : loop_(loop) {}
  ~GroupReturn();
  GroupReturn(const GroupReturn&) = delete;
  GroupReturn& operator=(const GroupReturn&) = delete;

  bool is_awaited() const noexcept { return awaited_; }
  /// `timed_out` is called if it has not come to its end by then.
  void begin(std::int64_t grace_ms, std::function<void()> timed_out);
  /// All are back, or will not come.
  void end();
  /// A request that waits; run_deferred() handles it.
  void defer(std::function<void()> request) { deferred_.push_back(std::move(request)); }
  void run_deferred();

 private:
  EventLoop& loop_;
  bool awaited_ = false;
  std::optional<EventLoop::TimerId> timer_;
  std::vector<std::function<void()>> deferred_;
};

}  // namespace forebay::server
