// SPDX-License-Identifier: Apache-2.0
#include "readers/serving_turns.h"

#include <algorithm>

#include "base/clock.h"

namespace forebay::server {
namespace {

constexpr std::int64_t turn_time_ns = 2 * ns_per_ms;
/// Also where the time was spent on others.
constexpr int answers_min = 4;

}  // namespace

ServingTurns::~ServingTurns() {
  if (timer_) loop_.cancel(*timer_);
}

ServingTurns::Slice::Slice(ServingTurns& turns) : turns_(turns), begun_ns_(monotonic_ns()) {}

ServingTurns::Slice::~Slice() {
  const std::int64_t before_ns = turns_.spent_ns();
  turns_.turn_ = turns_.loop_.turn();
  turns_.spent_ns_ = before_ns + monotonic_ns() - begun_ns_;
}

bool ServingTurns::Slice::has_time() {
  return answers_++ < answers_min || turns_.spent_ns() + monotonic_ns() - begun_ns_ < turn_time_ns;
}

std::int64_t ServingTurns::spent_ns() const {
  return turn_ == loop_.turn() ? spent_ns_ : 0;
}

void ServingTurns::go_on(Serving& serving) {
  if (std::ranges::find(waiting_, &serving) == waiting_.end()) waiting_.push_back(&serving);
  set_timer();
}

void ServingTurns::forget(Serving& serving) {
  std::erase(waiting_, &serving);
}

void ServingTurns::set_timer() {
  // One that is due now is dealt with after what has come in meanwhile.
  if (!timer_) timer_ = loop_.at(monotonic_ns(), [this] { take_turn(); });
}

void ServingTurns::take_turn() {
  timer_.reset();
  const auto count = waiting_.size();
  for (std::size_t taken = 0; taken < count && !waiting_.empty() && spent_ns() < turn_time_ns; ++taken) {
    Serving* const next = waiting_.front();
    const bool is_last = next->serve_some();
    // It may be gone by now.
    const auto found = std::ranges::find(waiting_, next);
    if (found == waiting_.end()) continue;
    waiting_.erase(found);
    if (!is_last) waiting_.push_back(next);
  }
  if (!waiting_.empty()) set_timer();
}

}  // namespace forebay::server
