// SPDX-License-Identifier: Apache-2.0
// Gives a record that a test has changed its checksum.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "storage/framing.h"

namespace forebay::storage {

/// The bytes of one whole record, header and padding.
inline void seal_frame(std::vector<std::byte>& frame) {
  const auto all = std::span<const std::byte>(frame);
  const std::uint32_t crc = crc32c(all.subspan(12), crc32c(all.first(8)));
  std::memcpy(frame.data() + offsetof(FrameHeader, crc), &crc, sizeof crc);
}

}  // namespace forebay::storage
