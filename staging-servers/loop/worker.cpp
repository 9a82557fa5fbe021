// SPDX-License-Identifier: Apache-2.0
#include "loop/worker.h"

#include <utility>

namespace forebay::server {

Worker::Worker(unsigned threads) {
  for (unsigned thread = 0; thread < threads; ++thread) threads_.emplace_back([this] { run(); });
}

Worker::~Worker() {
  end();
}

void Worker::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Worker::finish() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return jobs_.empty() && busy_ == 0; });
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    ++busy_;
    lock.unlock();
    job();
    lock.lock();
    if (--busy_ == 0 && jobs_.empty()) idle_.notify_all();
  }
}

}  // namespace forebay::server
