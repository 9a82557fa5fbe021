// SPDX-License-Identifier: Apache-2.0
// Remembers the process that opened something: a connection and what was granted through it must not be used by two.
#pragma once

#include <sys/types.h>

#include <forebay/result.h>

namespace forebay::client {

class OpeningProcess {
 public:
  OpeningProcess() noexcept;
  ~OpeningProcess();
  OpeningProcess(const OpeningProcess&) = delete;
  OpeningProcess& operator=(const OpeningProcess&) = delete;

  /// False in a child that was forked off. Cheap: asked at every call.
  bool is_current() const noexcept;
  /// An error in any other process.
  Result<void> check() const;

 private:
  const pid_t process_;
  volatile char* mark_ = nullptr;  // a page that the kernel clears in children; null where it cannot
};

}  // namespace forebay::client
