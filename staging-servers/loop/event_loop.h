// SPDX-License-Identifier: Apache-2.0
// The server's single thread of control: descriptors, timers, and work handed over by other threads. Everything that
// the server knows is touched from this thread only, so none of it needs a lock.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <forebay/result.h>

#include "base/descriptor.h"
#include "base/invariant.h"

namespace forebay::server {

class EventLoop {
 public:
  using Handler = std::function<void(std::uint32_t events)>;
  using Task = std::function<void()>;
  using TimerId = std::pair<std::int64_t, std::uint64_t>;

  static Result<std::unique_ptr<EventLoop>> create();

  /// Calls `handler` with the epoll events that occur. One handler a descriptor.
  Result<void> watch(int descriptor, std::uint32_t events, Handler handler);
  void change(int descriptor, std::uint32_t events);
  void forget(int descriptor);

  /// Runs `task` once at that time of the monotonic clock.
  TimerId at(std::int64_t monotonic_ns, Task task);
  void cancel(TimerId timer);

  /// Runs `task` in the loop's thread, after what is being handled. May be called from any thread.
  void post(Task task);

  /// The same for what thousands of connections may cause at once, such as their ends: 2 ms of it in a turn. Only the
  /// loop's own thread calls it.
  void post_in_turns(Task task);

  /// Runs `task` at the end of each turn, in which what had happened was handled.
  void after_each_turn(Task task) { after_turn_ = std::move(task); }

  /// The number of the turn that runs.
  std::uint64_t turn() const noexcept { return turn_; }

  /// Until stop().
  void run();
  void stop() { running_ = false; }
  /// Runs what was posted so far. At the end of a server: no event and no timer begins anything new there.
  void run_posted();

 private:
  EventLoop(Descriptor epoll, Descriptor wake);
  /// For events, or until the next timer is due.
  int wait(std::span<epoll_event> events);
  void run_tasks();
  void run_in_turns();
  void run_due_timers();
  /// While it runs, everything but post() is its own thread's.
  void check_thread() const {
    if constexpr (checks_invariants)
      invariant(!running_ || std::this_thread::get_id() == runner_, "the event loop is used by another thread");
  }

  Descriptor epoll_;
  Descriptor wake_;
  bool running_ = false;
  std::thread::id runner_;
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
  std::map<TimerId, Task> timers_;
  std::uint64_t timers_made_ = 0;
  std::deque<Task> in_turns_;
  Task after_turn_;
  std::uint64_t turn_ = 0;

  std::mutex posted_mutex_;
  std::vector<Task> posted_;  // guarded by posted_mutex_
};

}  // namespace forebay::server
