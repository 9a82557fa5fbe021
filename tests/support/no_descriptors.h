// SPDX-License-Identifier: Apache-2.0
// Takes away from this process what it needs to open files.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "base/descriptor.h"

namespace forebay::testing {

/// While it lives this process gets no more descriptors, and keeps those that it has.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    // All numbers below it are taken. A limit of 0 would also forbid poll() to wait for those that are open.
    const Descriptor lowest_free(::dup(STDERR_FILENO));
    if (!lowest_free.valid()) return;  // they are all taken already
    const rlimit none{static_cast<rlim_t>(lowest_free.get()), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace forebay::testing
