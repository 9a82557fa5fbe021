// SPDX-License-Identifier: Apache-2.0
#include "loop/event_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/system_error.h"

namespace forebay::server {
namespace {

constexpr std::int64_t turn_time_ns = 2 * ns_per_ms;
/// As many as connections that are accepted in a turn: what ends does not pile up.
constexpr int tasks_min = 64;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error(errno, "cannot make an epoll instance");
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return system_error(errno, "cannot make an eventfd");
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake)));
  const int wake_descriptor = loop->wake_.get();
  auto watched = loop->watch(wake_descriptor, EPOLLIN, [wake_descriptor](std::uint32_t) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_descriptor, &count, sizeof count);
  });
  if (!watched) return fail(std::move(watched.error()));
  return loop;
}

EventLoop::EventLoop(Descriptor epoll, Descriptor wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

Result<void> EventLoop::watch(int descriptor, std::uint32_t events, Handler handler) {
  check_thread();
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    return system_error(errno, "cannot watch a descriptor");
  handlers_[descriptor] = std::make_shared<Handler>(std::move(handler));
  return {};
}

void EventLoop::change(int descriptor, std::uint32_t events) {
  check_thread();
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void EventLoop::forget(int descriptor) {
  check_thread();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  handlers_.erase(descriptor);
}

EventLoop::TimerId EventLoop::at(std::int64_t monotonic_ns, Task task) {
  check_thread();
  const TimerId id{monotonic_ns, ++timers_made_};
  timers_.emplace(id, std::move(task));
  return id;
}

void EventLoop::cancel(TimerId timer) {
  check_thread();
  timers_.erase(timer);
}

void EventLoop::post(Task task) {
  {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(task));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::post_in_turns(Task task) {
  check_thread();
  in_turns_.push_back(std::move(task));
}

int EventLoop::wait(std::span<epoll_event> events) {
  std::int64_t timeout_ms = -1;
  if (!in_turns_.empty()) {
    timeout_ms = 0;
  } else if (!timers_.empty()) {
    const std::int64_t left_ns = timers_.begin()->first.first - monotonic_ns();
    timeout_ms = std::clamp<std::int64_t>(left_ns / 1'000'000, 0, std::numeric_limits<int>::max());
    if (timeout_ms == 0 && left_ns > 0) {
      // epoll_wait counts in milliseconds.
      pollfd ready{epoll_.get(), POLLIN, 0};
      const timespec left{0, left_ns};
      ::ppoll(&ready, 1, &left, nullptr);
    }
  }
  return ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(timeout_ms));
}

void EventLoop::run_due_timers() {
  const std::int64_t now = monotonic_ns();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

void EventLoop::run_posted() {
  run_tasks();
  for (const Task& task : std::exchange(in_turns_, {})) task();
}

void EventLoop::run_tasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(posted_mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

void EventLoop::run_in_turns() {
  const std::int64_t until_ns = monotonic_ns() + turn_time_ns;
  for (int done = 0; !in_turns_.empty() && (done < tasks_min || monotonic_ns() < until_ns); ++done) {
    const Task task = std::move(in_turns_.front());
    in_turns_.pop_front();
    task();
  }
}

void EventLoop::run() {
  runner_ = std::this_thread::get_id();
  running_ = true;
  // The kernel tells of who came first: so many of one user's connections are before another user's.
  std::array<epoll_event, 1024> events{};
  while (running_) {
    const int count = wait(events);
    ++turn_;
    for (int i = 0; i < count; ++i) {
      // A handler may forget others: look each one up, and keep it alive while it runs.
      const auto found = handlers_.find(events[static_cast<std::size_t>(i)].data.fd);
      if (found == handlers_.end()) continue;
      const std::shared_ptr<Handler> handler = found->second;
      (*handler)(events[static_cast<std::size_t>(i)].events);
    }
    run_tasks();
    run_in_turns();
    run_due_timers();
    if (after_turn_) after_turn_();
  }
  run_posted();
}

}  // namespace forebay::server
