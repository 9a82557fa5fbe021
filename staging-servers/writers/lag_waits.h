// SPDX-License-Identifier: Apache-2.0
// Ranks that wait at the begin of a step for readers that are too far behind (LagLimit).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "loop/event_loop.h"
#include "readers/followers.h"

namespace forebay::server {

class WriterSession;

class LagWaits {
 public:
  /// All of these outlive it. `stream`: its path, for errors.
  LagWaits(EventLoop& loop, Followers& followers, std::string stream)
      : loop_(loop), followers_(followers), stream_(std::move(stream)) {}
  ~LagWaits();
  LagWaits(const LagWaits&) = delete;
  LagWaits& operator=(const LagWaits&) = delete;

  /// A new group: its steps may have the numbers of earlier ones.
  void begin_group() noexcept { begun_.reset(); }
  /// Answers Done once no reader is too far behind, or another rank has begun the same step.
  void wait(WriterSession& session, std::uint32_t request, const wire::StepBegin& begin);
  /// Readers have got steps or have gone. Of thousands that do so at once not each is looked at anew: all are, at once
  /// and in the loop's next turn.
  void readers_moved();
  /// This rank has gone or has closed: it is not answered.
  void drop(const WriterSession& session);
  void fail_all(const Error& error);
  /// Appends who waits now.
  void describe_waits(std::vector<StreamWait>& waits) const;

 private:
  struct Waiter {
    WriterSession* session = nullptr;
    std::uint32_t request = 0;
    std::uint64_t step = 0;
    std::uint64_t limit = 0;
    std::int64_t timeout_ms = 0;
    std::optional<EventLoop::TimerId> timer;
    std::int64_t since_ns = 0;  ///< wall clock
  };

  bool may_begin(const Waiter& waiter) const;
  void look();
  void timed_out(const WriterSession& session);
  void forget(Waiter& waiter);

  EventLoop& loop_;
  Followers& followers_;
  const std::string stream_;
  std::vector<Waiter> waiters_;
  std::optional<std::uint64_t> begun_;  ///< the newest step that some rank has begun
  std::uint64_t looked_in_ = 0;         ///< turn of the loop
  std::optional<EventLoop::TimerId> look_timer_;
};

}  // namespace forebay::server
