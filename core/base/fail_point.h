// SPDX-License-Identifier: Apache-2.0
// Named places where tests make a process die or stop: FOREBAY_FAIL_POINT="name[:count]=kill|stop|exit" acts at the
// count-th passing (default the first). Costs one load of a flag where the variable is not set.
#pragma once

namespace forebay {

namespace internal {
extern const bool fail_points_armed;
void pass_fail_point(const char* name);
}  // namespace internal

/// Marks a place that a test may name.
inline void fail_point(const char* name) {
  if (internal::fail_points_armed) [[unlikely]]
    internal::pass_fail_point(name);
}

}  // namespace forebay
