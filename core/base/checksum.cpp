// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <algorithm>
#include <limits>

#include <isa-l/crc.h>

namespace forebay {
namespace {

// Polynomials over GF(2), lowest power in the highest bit, as CRC-32C has them; all modulo its polynomial.
constexpr std::uint32_t polynomial = 0x82f63b78;
constexpr std::uint32_t one = std::uint32_t{1} << 31;

constexpr std::uint32_t product(std::uint32_t left, std::uint32_t right) noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t power = one; power != 0; power >>= 1) {
    if ((left & power) != 0) sum ^= right;
    right = (right & 1) != 0 ? (right >> 1) ^ polynomial : right >> 1;
  }
  return sum;
}

/// x^(8 bytes): what a checksum is multiplied with when as many bytes follow.
constexpr std::uint32_t shifted_by(std::uint64_t bytes) noexcept {
  std::uint32_t result = one;
  std::uint32_t square = one >> 8;  // x^8
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = product(result, square);
    square = product(square, square);
  }
  return result;
}

}  // namespace

std::uint32_t crc32c_combined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept {
  return product(shifted_by(second_bytes), first) ^ second;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
  // ISA-L takes the length as int and neither inverts the start value nor the result.
  constexpr std::size_t length_max = std::size_t{1} << 30;
  std::uint32_t state = ~previous;
  while (!bytes.empty()) {
    const std::size_t length = std::min(bytes.size(), length_max);
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(length), state);
    bytes = bytes.subspan(length);
  }
  return ~state;
}

}  // namespace forebay
