// SPDX-License-Identifier: Apache-2.0
// Memory that cannot be had: operator new of this test program, which fails when it is told to, in one thread or in
// all.
#pragma once

#include <cstdint>

namespace forebay::testing {

/// While it lives, the n-th allocation (from 1) of this thread throws std::bad_alloc, and with `lasting` every later
/// one.
class FailingMemory {
 public:
  /// 0: none does.
  FailingMemory(std::uint64_t n, bool lasting) noexcept;
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  /// Whether an allocation has failed.
  static bool has_failed() noexcept;
};

/// The n-th allocation (from 1) from now on fails, whichever thread's it is; 0: none does.
void fail_allocation_of_any_thread(std::uint64_t n) noexcept;

}  // namespace forebay::testing
