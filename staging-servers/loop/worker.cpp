// SPDX-License-Identifier: Apache-2.0
#include "loop/worker.h"

#include <algorithm>
#include <utility>

namespace forebay::server {

Worker::Worker(unsigned threads) : thread_count_(threads) {
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
  idle_.wait(lock, [this] { return nothing_waits() && busy_ == 0; });
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

bool Worker::add_for(uid_t user, const std::weak_ptr<const bool>& wanted, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return true;
    const auto waiting = users_jobs_.find(user);
    if (waiting != users_jobs_.end()) {
      // Those that nobody wants any more make room.
      std::erase_if(waiting->second, [](const UsersJob& one) { return !one.is_wanted(); });
      if (waiting->second.size() >= waiting_of_user_max) return false;
    }
    users_jobs_[user].push_back({wanted, std::move(job)});
  }
  changed_.notify_one();
  return true;
}

void Worker::add_for(uid_t user, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    users_jobs_[user].push_back({std::nullopt, std::move(job)});
  }
  changed_.notify_one();
}

bool Worker::may_run(uid_t user) const {
  // At the end there is nobody to keep a thread for.
  if (thread_count_ == 1 || ending_) return true;
  const unsigned for_users = thread_count_ - 1;
  if (busy_for_users_ >= for_users) return false;
  return !running_.contains(user) || busy_for_users_ + 1 < for_users;
}

Worker::Turn Worker::next() {
  if (!jobs_.empty()) {
    Turn turn{std::move(jobs_.front()), nullptr};
    jobs_.pop_front();
    return turn;
  }
  auto waiting = users_jobs_.upper_bound(last_user_);
  for (std::size_t tried = users_jobs_.size(); tried > 0; --tried) {
    if (waiting == users_jobs_.end()) waiting = users_jobs_.begin();
    auto& [user, jobs] = *waiting;
    while (!jobs.empty() && !jobs.front().is_wanted()) jobs.pop_front();
    if (jobs.empty()) {
      waiting = users_jobs_.erase(waiting);
      continue;
    }
    if (!may_run(user)) {
      ++waiting;
      continue;
    }
    last_user_ = user;
    const auto running = running_.try_emplace(user, 0).first;
    ++running->second;
    ++busy_for_users_;
    Turn turn{std::move(jobs.front().run), &running->first};
    jobs.pop_front();
    if (jobs.empty()) users_jobs_.erase(waiting);
    return turn;
  }
  return {};
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    Turn turn = next();
    if (!turn.job) {
      if (busy_ == 0 && nothing_waits()) idle_.notify_all();
      if (ending_ && nothing_waits()) return;
      changed_.wait(lock);
      continue;
    }
    ++busy_;
    lock.unlock();
    turn.job();
    turn.job = {};
    lock.lock();
    --busy_;
    if (turn.user != nullptr) {
      --busy_for_users_;
      const auto running = running_.find(*turn.user);
      if (--running->second == 0) running_.erase(running);
      // Others may run now that might not before.
      changed_.notify_all();
    }
    if (busy_ == 0 && nothing_waits()) idle_.notify_all();
  }
}

}  // namespace forebay::server
