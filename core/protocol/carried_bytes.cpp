// SPDX-License-Identifier: Apache-2.0
#include "protocol/carried_bytes.h"

#include <algorithm>

#include "base/bounds.h"

namespace forebay::protocol {

void drop_zeros(std::vector<std::uint8_t>& bytes) {
  while (!bytes.empty() && bytes.back() == 0) bytes.pop_back();
}

void restore_zeros(std::span<const wire::Extent> places, std::vector<std::uint8_t>& bytes) {
  std::uint64_t total = 0;
  for (const wire::Extent& place : places)
    total = std::min(total + std::min(place.length(), carried_bytes_max), carried_bytes_max);
  if (bytes.size() < total) bytes.resize(total);
}

Result<std::vector<CarriedPiece>> carried_pieces(std::span<const wire::Extent> places,
                                                 std::span<const std::uint8_t> bytes) {
  if (bytes.size() > carried_bytes_max)
    return fail(ErrorCode::protocol, "a message carries more bytes of a step than it may");
  std::vector<CarriedPiece> pieces;
  std::span<const std::byte> rest = std::as_bytes(bytes);
  for (const wire::Extent& place : places) {
    if (place.length() == 0 || place.length() > rest.size() || !checked_add(place.offset(), place.length()))
      return fail(ErrorCode::protocol, "the extents that a message carries do not agree with its bytes");
    pieces.push_back({place, rest.first(place.length())});
    rest = rest.subspan(place.length());
  }
  if (!rest.empty()) return fail(ErrorCode::protocol, "a message carries bytes without a place");
  return pieces;
}

}  // namespace forebay::protocol
