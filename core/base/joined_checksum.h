// SPDX-License-Identifier: Apache-2.0
// CRC-32C of bytes of which the parts were computed apart, and of zeros that nobody reads.
#pragma once

#include <cstdint>

namespace forebay {

/// The checksum of A followed by B, from those of A and of B and B's length.
/// Source: the method of zlib's crc32_combine: appending n zero bits is a linear map over GF(2).
std::uint32_t joined_checksum(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept;

/// The checksum of bytes that were followed by so many zeros.
std::uint32_t checksum_with_zeros(std::uint32_t checksum, std::uint64_t zero_bytes) noexcept;

}  // namespace forebay
