// SPDX-License-Identifier: Apache-2.0
// Bytes of a small step that travel inside a message between a server and a client on another node: extents, and what
// lies in them, one behind another. They save the round trips of a data path.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

namespace forebay::protocol {

/// More than that takes the data path.
inline constexpr std::uint64_t carried_bytes_max = std::uint64_t{64} << 10;

/// One extent of them. The bytes are the message's.
struct CarriedPiece {
  wire::Extent place;
  std::span<const std::byte> bytes;
};

/// What a message carries, in its order; nothing if it carries nothing. protocol unless the lengths of the extents are
/// those of the bytes, none is 0, none overflows, and all together are at most carried_bytes_max.
Result<std::vector<CarriedPiece>> carried_pieces(std::span<const wire::Extent> places,
                                                 std::span<const std::uint8_t> bytes);

}  // namespace forebay::protocol
