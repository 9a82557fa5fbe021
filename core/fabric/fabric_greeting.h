// SPDX-License-Identifier: Apache-2.0
// What the two ends of a fabric path tell each other first, over its socket. docs/formats/remote.md has the layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "fabric/rma_endpoint.h"

namespace forebay::fabric {

/// The client's first message over the fabric: nobody else knows it.
using FabricPassword = std::array<std::uint8_t, 32>;

struct FabricGreeting {
  FabricIdentity identity;
  FabricPassword password{};       ///< the server's choice; the client's is zero
  std::vector<std::byte> address;  ///< of the endpoint
};

/// How long either end waits for the other's greeting.
inline constexpr std::int64_t greeting_timeout_ms = 30'000;

inline constexpr std::size_t fabric_greeting_bytes = 208;
std::vector<std::byte> encode(const FabricGreeting& greeting);
/// protocol unless it is a greeting of this version.
Result<FabricGreeting> decode_greeting(std::span<const std::byte> bytes);

}  // namespace forebay::fabric
