// SPDX-License-Identifier: Apache-2.0
// All bytes of a small step, or the metadata of a large one, as they came with its description from a server on another
// node. The server copied them into the message while the step was there, so they are the step's whatever becomes of
// its space.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "protocol/carried_bytes.h"

namespace forebay::client {

class CarriedStep {
 public:
  /// Null if the description carries none. protocol if it makes no sense.
  static Result<std::shared_ptr<const CarriedStep>> of(const wire::StepDescriptor& step);

  /// Nothing of the step is left to ask for.
  bool is_whole() const noexcept { return is_whole_; }
  /// Whether all of the extent is in one of its pieces, or the step is whole.
  bool has(const wire::Extent& extent) const noexcept;
  /// Copies bytes of a segment; an extent may go on in the next one. corrupt if the step has nothing there.
  Result<void> read(std::uint32_t segment, std::uint16_t member, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  CarriedStep() = default;
  const protocol::CarriedPiece* piece_at(std::uint32_t segment, std::uint16_t member,
                                         std::uint64_t offset) const noexcept;

  bool is_whole_ = false;
  std::vector<std::uint8_t> bytes_;
  std::vector<protocol::CarriedPiece> pieces_;  // into bytes_
};

}  // namespace forebay::client
