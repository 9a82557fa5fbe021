// SPDX-License-Identifier: Apache-2.0
// What tells an old copy of a member, or of a home, from what it should be: counters of syncs in a small file of the
// reservation's folder. See "Members" in docs/formats/reservation.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "base/device.h"

namespace forebay::server {

/// So many of them; zeros if there is no such file. corrupt if it is not what was stored.
Result<std::vector<std::uint64_t>> load_sync_counters(Device& device, const std::string& folder, std::size_t count);

/// On stable storage when it returns. Always as many as before. busy if nothing was begun.
Result<void> store_sync_counters(Device& device, const std::string& folder, std::span<const std::uint64_t> counters);

}  // namespace forebay::server
