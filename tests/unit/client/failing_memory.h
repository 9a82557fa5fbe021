// SPDX-License-Identifier: Apache-2.0
// Memory that cannot be had: operator new of this test program, which fails in one thread when it is told to.
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

}  // namespace forebay::testing
