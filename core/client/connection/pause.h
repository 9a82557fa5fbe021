// SPDX-License-Identifier: Apache-2.0
// A pause between two attempts that the caller's interrupt hook can end.
#pragma once

#include <cstdint>

#include <forebay/writer.h>

namespace forebay::client {

/// Pauses at most `duration_ms` (up to 100). cancelled if the hook says so, before or after.
Result<void> pause_ms(std::int64_t duration_ms, const InterruptHook& interrupt);

}  // namespace forebay::client
