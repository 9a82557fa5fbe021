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

/// A step's last page is mostly zeros, and each byte would be encrypted, sent and decrypted: those at the end stay
/// away.
void drop_zeros(std::vector<std::uint8_t>& bytes);
/// Puts them back, up to the lengths of the extents but to no more than carried_bytes_max.
void restore_zeros(std::span<const wire::Extent> places, std::vector<std::uint8_t>& bytes);

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
