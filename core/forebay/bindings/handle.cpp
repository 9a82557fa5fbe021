// SPDX-License-Identifier: Apache-2.0
#include "handle.h"

#include <pthread.h>

namespace forebay::python {

namespace {

std::atomic<std::uint64_t> forks{0};

}  // namespace

std::uint64_t fork_generation() noexcept {
  return forks.load(std::memory_order_relaxed);
}

void count_forks() {
  pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace forebay::python
