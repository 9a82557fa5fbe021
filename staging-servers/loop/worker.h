// SPDX-License-Identifier: Apache-2.0
// Threads for what may take long: syncs, creating and deleting files, reading data to check it. Jobs begin in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace forebay::server {

class Worker {
 public:
  /// With one thread, a job begins when the one before has ended.
  explicit Worker(unsigned threads = 1);
  /// Finishes the jobs that were added.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Nothing happens once the worker is ending.
  void add(std::function<void()> job);
  /// Waits until nothing is left to do.
  void finish();
  /// Finishes the jobs that were added, and takes no more.
  void end();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  unsigned busy_ = 0;                       // guarded by mutex_: threads that run a job
  bool ending_ = false;                     // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace forebay::server
