// SPDX-License-Identifier: Apache-2.0
#include "client/reading/carried_step.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/return_error.h"

namespace forebay::client {

Result<std::shared_ptr<const CarriedStep>> CarriedStep::of(const wire::StepDescriptor& step) {
  std::vector<wire::Extent> places;
  if (step.carried() != nullptr) {
    for (const wire::Extent* place : *step.carried()) places.push_back(*place);
  }
  if (places.empty()) return std::shared_ptr<const CarriedStep>();
  std::shared_ptr<CarriedStep> carried(new CarriedStep);
  if (step.bytes() != nullptr) carried->bytes_.assign(step.bytes()->begin(), step.bytes()->end());
  protocol::restore_zeros(places, carried->bytes_);
  carried->is_whole_ = step.summary() != nullptr && step.summary()->size_bytes() == carried->bytes_.size();
  ASSIGN_OR_RETURN(carried->pieces_, protocol::carried_pieces(places, carried->bytes_));
  return std::shared_ptr<const CarriedStep>(std::move(carried));
}

const protocol::CarriedPiece* CarriedStep::piece_at(std::uint32_t segment, std::uint16_t member,
                                                    std::uint64_t offset) const noexcept {
  const auto found = std::ranges::find_if(pieces_, [&](const protocol::CarriedPiece& candidate) {
    const wire::Extent& place = candidate.place;
    return place.segment() == segment && place.member() == member && place.offset() <= offset &&
           offset - place.offset() < place.length();
  });
  return found == pieces_.end() ? nullptr : &*found;
}

bool CarriedStep::has(const wire::Extent& extent) const noexcept {
  if (is_whole_) return true;
  const protocol::CarriedPiece* piece = piece_at(extent.segment(), extent.member(), extent.offset());
  return piece != nullptr && piece->place.length() - (extent.offset() - piece->place.offset()) >= extent.length();
}

Result<void> CarriedStep::read(std::uint32_t segment, std::uint16_t member, std::uint64_t offset,
                               std::span<std::byte> out) const {
  while (!out.empty()) {
    const protocol::CarriedPiece* piece = piece_at(segment, member, offset);
    if (piece == nullptr) {
      return fail(ErrorCode::corrupt, "the step refers to bytes outside of its space",
                  "segment " + std::to_string(segment) + " @ " + std::to_string(offset));
    }
    const auto from = piece->bytes.subspan(offset - piece->place.offset());
    const std::size_t bytes = std::min(from.size(), out.size());
    std::memcpy(out.data(), from.data(), bytes);
    out = out.subspan(bytes);
    offset += bytes;
  }
  return {};
}

}  // namespace forebay::client
