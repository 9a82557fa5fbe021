// SPDX-License-Identifier: Apache-2.0
// CRC-32C, computed by ISA-L. Declared for users too: who holds a block's bytes can compare them with its checksum.
#pragma once

#include <cstdint>

#include <forebay/checksum.h>

namespace forebay {

/// CRC-32C of two runs of bytes one behind another, from that of each and the length of the second.
std::uint32_t crc32c_combined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept;

}  // namespace forebay
