// SPDX-License-Identifier: Apache-2.0
#include "writers/lag_waits.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fail_point.h"
#include "writers/writer_session.h"

namespace forebay::server {

LagWaits::~LagWaits() {
  for (Waiter& waiter : waiters_) forget(waiter);
  if (look_timer_) loop_.cancel(*look_timer_);
}

void LagWaits::forget(Waiter& waiter) {
  if (waiter.timer) loop_.cancel(*waiter.timer);
  waiter.timer.reset();
}

bool LagWaits::may_begin(const Waiter& waiter) const {
  if (begun_ == waiter.step) return true;
  const auto last = followers_.furthest_behind();
  return !last || last->steps <= waiter.limit;
}

void LagWaits::wait(WriterSession& session, std::uint32_t request, const wire::StepBegin& begin) {
  drop(session);
  Waiter waiter{&session, request, begin.step(), begin.lag_limit(), begin.timeout_ms(), std::nullopt, wall_clock_ns()};
  if (may_begin(waiter)) {
    begun_ = waiter.step;
    session.connection().answer_done(request);
    return;
  }
  const Deadline deadline = Deadline::after_ms(waiter.timeout_ms);
  if (!deadline.is_never()) waiter.timer = loop_.at(deadline.at_ns(), [this, &session] { timed_out(session); });
  waiters_.push_back(std::move(waiter));
  // A killed reader's socket may live on in a forked child.
  followers_.end_with_processes();
  fail_point("server.lag.waiting");
}

void LagWaits::readers_moved() {
  if (waiters_.empty() || look_timer_) return;
  if (std::exchange(looked_in_, loop_.turn()) != loop_.turn()) {
    look();
    return;
  }
  look_timer_ = loop_.at(monotonic_ns(), [this] {
    look_timer_.reset();
    look();
  });
}

void LagWaits::look() {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (!may_begin(*waiter)) {
      ++waiter;
      continue;
    }
    begun_ = waiter->step;
    forget(*waiter);
    waiter->session->connection().answer_done(waiter->request);
    // Others that wait to begin the same step may, too.
    waiters_.erase(waiter);
    waiter = waiters_.begin();
  }
}

void LagWaits::timed_out(const WriterSession& session) {
  const auto late = std::ranges::find(waiters_, &session, &Waiter::session);
  Waiter waiter = std::move(*late);
  waiters_.erase(late);
  const auto last = followers_.furthest_behind();
  waiter.session->connection().answer_failure(
      waiter.request,
      {ErrorCode::timeout,
       fmt::format("LagLimit={}: {} is {} steps behind and did not catch up within {} s; end that reader, or raise "
                   "LagLimit or BlockTimeoutSecs",
                   waiter.limit, last ? last->reader : "a reader", last ? last->steps : 0,
                   static_cast<double>(waiter.timeout_ms) / 1000),
       fmt::format("stream {}, step {}", stream_, waiter.step)});
}

void LagWaits::describe_waits(std::vector<StreamWait>& waits) const {
  if (waiters_.empty()) return;
  const auto last = followers_.furthest_behind();
  for (const Waiter& waiter : waiters_) {
    waits.push_back(
        writer_wait(*waiter.session, StreamWait::Kind::readers,
                    fmt::format("{}, which is {} steps behind (LagLimit={}), to begin step {}",
                                last ? last->reader : "a reader", last ? last->steps : 0, waiter.limit, waiter.step),
                    waiter.since_ns));
  }
}

void LagWaits::drop(const WriterSession& session) {
  const auto found = std::ranges::find(waiters_, &session, &Waiter::session);
  if (found == waiters_.end()) return;
  forget(*found);
  waiters_.erase(found);
}

void LagWaits::fail_all(const Error& error) {
  for (Waiter& waiter : std::exchange(waiters_, {})) {
    forget(waiter);
    waiter.session->connection().answer_failure(waiter.request, error);
  }
}

}  // namespace forebay::server
