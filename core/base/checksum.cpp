// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <algorithm>
#include <limits>

#include <isa-l/crc.h>

namespace forebay {

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
