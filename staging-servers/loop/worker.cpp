// SPDX-License-Identifier: Apache-2.0
#include "loop/worker.h"

#include <future>

namespace forebay::server {

Worker::Worker() : thread_([this] { run(); }) {}

Worker::~Worker() {
  end();
}

void Worker::end() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Worker::finish() {
  std::promise<void> finished;
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    jobs_.emplace_back([&finished] { finished.set_value(); });
  }
  changed_.notify_one();
  finished.get_future().wait();
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
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace forebay::server
