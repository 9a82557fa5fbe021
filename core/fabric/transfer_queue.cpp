// SPDX-License-Identifier: Apache-2.0
#include "fabric/transfer_queue.h"

#include <utility>

namespace forebay::fabric {

bool TransferQueue::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= ServerPath::transfers_max) return false;
    if (closed_) return true;  // nothing is sent any more
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void TransferQueue::close() {
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(jobs_);  // with their files, which are closed without the lock
  }
  changed_.notify_one();
}

std::optional<TransferQueue::Job> TransferQueue::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
  if (closed_) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

std::optional<TransferQueue::Job> TransferQueue::try_take() {
  const std::lock_guard lock(mutex_);
  if (closed_ || jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

bool TransferQueue::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace forebay::fabric
