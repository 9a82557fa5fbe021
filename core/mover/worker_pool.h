// SPDX-License-Identifier: Apache-2.0
// Threads that do what they are given, in its order. After the first failure they drop the rest.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <forebay/result.h>

namespace forebay::mover {

class WorkerPool {
 public:
  using Task = std::function<Result<void>()>;

  explicit WorkerPool(std::size_t threads) {
    for (std::size_t number = 0; number < threads; ++number) threads_.emplace_back([this] { work(); });
  }
  ~WorkerPool() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      queue_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Waits while too much is queued: what a task holds open is bounded.
  void submit(Task task) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return queue_.size() < queued_max || failure_; });
    add(std::move(task));
  }
  /// Never waits: for tasks that submit others.
  void submit_from_task(Task task) {
    const std::lock_guard lock(mutex_);
    add(std::move(task));
  }
  /// Waits until all is done; the first failure if there was one, then and from then on.
  Result<void> wait() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return queue_.empty() && busy_ == 0; });
    if (failure_) return fail(*failure_);
    return {};
  }
  /// Nobody needs the rest: what is queued is dropped, what is under way is waited for. The pool has failed then.
  void drop() {
    std::unique_lock lock(mutex_);
    if (!failure_) failure_ = Error{ErrorCode::cancelled, "the stage has failed already", ""};
    queue_.clear();
    room_.notify_all();
    idle_.wait(lock, [this] { return busy_ == 0; });
  }
  std::size_t threads() const noexcept { return threads_.size(); }

 private:
  static constexpr std::size_t queued_max = 128;

  void add(Task task) {
    if (failure_) return;
    queue_.push_back(std::move(task));
    changed_.notify_one();
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (ending_) return;
      {
        Task task = std::move(queue_.front());
        queue_.pop_front();
        ++busy_;
        room_.notify_one();
        lock.unlock();
        Result<void> result = task();
        task = nullptr;  // what it holds is let go of before the lock is taken
        lock.lock();
        --busy_;
        if (!result && !failure_) {
          failure_ = std::move(result.error());
          queue_.clear();
          room_.notify_all();
        }
      }
      if (busy_ == 0) idle_.notify_all();
    }
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::condition_variable room_;
  std::condition_variable idle_;
  std::deque<Task> queue_;
  std::size_t busy_ = 0;
  bool ending_ = false;
  std::optional<Error> failure_;
  std::vector<std::thread> threads_;
};

}  // namespace forebay::mover
