// SPDX-License-Identifier: Apache-2.0
#include "base/invariant.h"

#include <cstdio>
#include <cstdlib>

namespace forebay {

void broken_invariant(const std::string& what) {
  // Without the log, which may be what is broken, or closed.
  std::fprintf(stderr, "forebay: an invariant is broken, which is a bug: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace forebay
