// SPDX-License-Identifier: Apache-2.0
// A value that is made when it is first asked for, by whichever thread.
#pragma once

#include <atomic>
#include <mutex>

namespace forebay {

/// Where making it throws, whoever asks next begins anew. (std::call_once waits for ever then where pthread_once knows
/// of no exceptions: libstdc++ on some platforms, GCC bug 66146, and the thread sanitizer everywhere.)
template <class T>
class MadeOnce {
 public:
  /// `make()` returns it.
  template <class Make>
  const T& get(Make&& make) {
    if (!made_.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex_);
      if (!made_.load(std::memory_order_relaxed)) {
        value_ = make();
        made_.store(true, std::memory_order_release);
      }
    }
    return value_;
  }

 private:
  std::atomic<bool> made_ = false;
  std::mutex mutex_;
  T value_{};
};

}  // namespace forebay
