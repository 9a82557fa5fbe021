// SPDX-License-Identifier: Apache-2.0
// The device that this process's writers and readers use segments on.
#pragma once

#include "base/device.h"

namespace forebay::client {

/// posix_device(), unless another was set.
Device& client_device() noexcept;

/// For tests: writers and readers opened from now on use `device`, which outlives them. Not while others open any.
void set_client_device(Device& device) noexcept;

}  // namespace forebay::client
