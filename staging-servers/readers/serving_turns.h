// SPDX-License-Identifier: Apache-2.0
// Answers to thousands of readers at once take milliseconds. They are given some at a time, and what others of the
// server ask for is dealt with in between.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "loop/event_loop.h"

namespace forebay::server {

/// What has answers to give.
class Serving {
 public:
  virtual ~Serving() = default;
  /// Gives some, as ServingTurns::Slice says; true: that was the last.
  virtual bool serve_some() = 0;
};

class ServingTurns {
 public:
  explicit ServingTurns(EventLoop& loop) noexcept : loop_(loop) {}
  ~ServingTurns();
  ServingTurns(const ServingTurns&) = delete;
  ServingTurns& operator=(const ServingTurns&) = delete;

  /// One stretch of answers. All stretches of a turn of the loop have 2 ms together, and each a few answers.
  class Slice {
   public:
    explicit Slice(ServingTurns& turns);
    ~Slice();
    Slice(const Slice&) = delete;
    Slice& operator=(const Slice&) = delete;

    /// Is there time for one more?
    bool has_time();

   private:
    ServingTurns& turns_;
    const std::int64_t begun_ns_;
    int answers_ = 0;
  };

  /// Calls serve_some() in the next turns of the loop until all is served; idempotent.
  void go_on(Serving& serving);
  /// It has nothing to serve any more.
  void forget(Serving& serving);

 private:
  std::int64_t spent_ns() const;
  void take_turn();
  void set_timer();

  EventLoop& loop_;
  std::deque<Serving*> waiting_;
  std::optional<EventLoop::TimerId> timer_;
  std::uint64_t turn_ = 0;  ///< of the loop, in which so much was spent
  std::int64_t spent_ns_ = 0;
};

}  // namespace forebay::server
