// SPDX-License-Identifier: Apache-2.0
#include "client/connection/pause.h"

#include <ctime>

namespace forebay::client {

Result<void> pause_ms(std::int64_t duration_ms, const InterruptHook& interrupt) {
  const auto stop = [&]() { return interrupt && interrupt(); };
  if (!stop()) {
    // A signal ends the pause early, so that the hook learns of it at once.
    const timespec duration{0, static_cast<long>(duration_ms * 1'000'000)};
    ::nanosleep(&duration, nullptr);
    if (!stop()) return {};
  }
  return fail(ErrorCode::cancelled, "interrupted while waiting for the server");
}

}  // namespace forebay::client
