// SPDX-License-Identifier: Apache-2.0
#include "writers/group_return.h"

#include "base/clock.h"

namespace forebay::server {

GroupReturn::~GroupReturn() {
  if (timer_) loop_.cancel(*timer_);
}

void GroupReturn::begin(std::int64_t grace_ms, std::function<void()> timed_out) {
  awaited_ = true;
  timer_ = loop_.at(Deadline::after_ms(grace_ms).at_ns(), [this, timed_out = std::move(timed_out)] {
    timer_.reset();
    timed_out();
  });
}

void GroupReturn::end() {
  awaited_ = false;
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
}

void GroupReturn::run_deferred() {
  for (auto& request : std::exchange(deferred_, {})) request();
}

}  // namespace forebay::server
