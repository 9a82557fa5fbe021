// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli), as every block and record carries it: "123456789" gives 0xE3069283.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace forebay {

/// CRC-32C of `bytes`; pass the result of an earlier call as `previous` to go on with more bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0) noexcept;

}  // namespace forebay
