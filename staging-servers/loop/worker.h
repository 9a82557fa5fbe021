// SPDX-License-Identifier: Apache-2.0
// A thread for what may take long: syncs, creating and deleting files, reading data to check it. Jobs run in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace forebay::server {

class Worker {
 public:
  Worker();
  /// Finishes the jobs that were added.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Nothing happens once the worker is ending.
  void add(std::function<void()> job);
  /// Waits until the jobs that were added are finished.
  void finish();
  /// Finishes the jobs that were added, and takes no more.
  void end();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool ending_ = false;                     // guarded by mutex_
  std::thread thread_;
};

}  // namespace forebay::server
