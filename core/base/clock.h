// SPDX-License-Identifier: Apache-2.0
// Wall-clock and monotonic time in nanoseconds, and deadlines made from the public API's millisecond timeouts.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace forebay {

inline constexpr std::int64_t ns_per_ms = 1'000'000;

inline std::int64_t clock_ns(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}
inline std::int64_t wall_clock_ns() noexcept {
  return clock_ns(CLOCK_REALTIME);
}
inline std::int64_t monotonic_ns() noexcept {
  return clock_ns(CLOCK_MONOTONIC);
}

/// A moment on the monotonic clock, or never.
class Deadline {
 public:
  static Deadline never() noexcept { return Deadline(std::numeric_limits<std::int64_t>::max()); }
  /// Negative: never.
  static Deadline after_ms(std::int64_t timeout_ms) noexcept {
    constexpr std::int64_t longest_ms = std::int64_t{1} << 40;
    if (timeout_ms < 0 || timeout_ms > longest_ms) return never();
    return Deadline(monotonic_ns() + timeout_ms * 1'000'000);
  }
  bool is_never() const noexcept { return at_ns_ == std::numeric_limits<std::int64_t>::max(); }
  bool passed() const noexcept { return !is_never() && monotonic_ns() >= at_ns_; }
  /// Milliseconds left, rounded up, at most `most_ms`; 0 once passed.
  std::int64_t remaining_ms(std::int64_t most_ms) const noexcept {
    if (is_never()) return most_ms;
    const std::int64_t left_ns = at_ns_ - monotonic_ns();
    if (left_ns <= 0) return 0;
    const std::int64_t left_ms = (left_ns + 999'999) / 1'000'000;
    return left_ms < most_ms ? left_ms : most_ms;
  }
  std::int64_t at_ns() const noexcept { return at_ns_; }

 private:
  explicit Deadline(std::int64_t at_ns) noexcept : at_ns_(at_ns) {}
  std::int64_t at_ns_;
};

}  // namespace forebay
