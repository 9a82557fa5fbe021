// SPDX-License-Identifier: Apache-2.0
#include "base/limited_log.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace forebay::log {

bool Limited::has_turn() {
  return has_turn(monotonic_ns());
}

bool Limited::has_turn(std::int64_t now_ns) {
  if (last_token_ns_ == 0) last_token_ns_ = now_ns;
  const std::int64_t came = std::min<std::int64_t>((now_ns - last_token_ns_) / pause_ns_, at_once_max_);
  if (came > 0) {
    tokens_ = std::min(at_once_max_, tokens_ + static_cast<std::uint32_t>(came));
    last_token_ns_ = now_ns;
  }
  if (tokens_ == 0) {
    ++left_out_;
    return false;
  }
  --tokens_;
  return true;
}

std::string Limited::left_out() {
  const std::uint64_t count = std::exchange(left_out_, 0);
  return count == 0 ? std::string() : fmt::format(" ({} more like this were left out)", count);
}

}  // namespace forebay::log
