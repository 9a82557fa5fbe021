// SPDX-License-Identifier: Apache-2.0
// Verified decoding of StepMetadata (step_metadata.fbs) and a walk over the bytes that it refers to. Clients, audit and
// recovery all decode here. What passes needs no further checks, except that pieces must lie within their segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <flatbuffers/flatbuffers.h>

#include <forebay/protocol/step_metadata_generated.h>
#include <forebay/result.h>
#include <forebay/types.h>

#include "base/return_error.h"

namespace forebay::protocol {

inline constexpr std::uint16_t step_metadata_version = 1;
/// Most dimensions that an array may have.
inline constexpr std::size_t dimensions_max = 32;
/// Blocks of this size and more are aligned to it and may lie in several pieces; smaller ones are whole.
inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr std::uint64_t small_block_alignment = 64;
/// An encoded AttributeTable of this size and more is written once, as a set that steps refer to; a smaller one lies in
/// the metadata of each step.
inline constexpr std::size_t attribute_set_bytes_min = 4096;
/// Bytes of a block's minimum and maximum together.
inline constexpr std::size_t statistics_bytes = 32;

/// Where the bytes of one block lie.
struct BlockPlace {
  std::uint32_t block = 0;  ///< index among the variable's blocks of this part
  std::uint64_t bytes = 0;
  std::uint32_t first_piece = 0;
  std::uint32_t piece_count = 0;  ///< 0 for blocks without bytes
  std::optional<std::uint32_t> checksum;
};

/// The metadata in `bytes` (8-byte aligned, as allocated memory is), after all checks that
/// docs/formats/step-metadata.md lists but for segment bounds. Valid as long as the bytes. Errors: corrupt, with the
/// variable's name and what is wrong.
Result<const format::StepMetadata*> decode_step_metadata(std::span<const std::byte> bytes);

/// An encoded table of attributes (8-byte aligned), checked. Valid as long as the bytes. Errors: corrupt.
Result<const format::AttributeTable*> decode_attributes(std::span<const std::byte> bytes);

/// The attributes of decoded metadata; null if there are none, or if a set of the part has them.
const format::AttributeTable* attributes_of(const format::StepMetadata& metadata) noexcept;

/// Values of an attribute of decoded metadata.
AttributeValue attribute_value(const format::Attribute& attribute);

// For variables of decoded metadata:

/// True for global_value and local_value.
bool is_single_value(const format::Variable& variable) noexcept;
/// Number of blocks; a single value is one block without pieces.
std::uint32_t block_count(const format::Variable& variable) noexcept;
/// Extents of one block; empty for single values.
std::span<const std::uint64_t> block_extents(const format::Variable& variable, std::uint32_t block) noexcept;
/// Bytes of one block of an array.
std::uint64_t block_bytes(const format::Variable& variable, std::uint32_t block) noexcept;
/// Place of one block of an array. Its cost grows with `block`; walk with visit_blocks to see them all.
BlockPlace block_place(const format::Variable& variable, std::uint32_t block) noexcept;
/// Element type and shape kind, which decoding has found valid.
inline DataType type_of(const format::Variable& variable) noexcept {
  return static_cast<DataType>(variable.type());
}
inline ShapeKind kind_of(const format::Variable& variable) noexcept {
  return static_cast<ShapeKind>(variable.kind());
}
inline std::string_view name_of(const format::Variable& variable) noexcept {
  return {variable.name()->data(), variable.name()->size()};
}
inline const format::Piece& piece_of(const format::Variable& variable, std::uint32_t piece) noexcept {
  return *variable.pieces()->Get(piece);
}

/// Calls `visit(const BlockPlace&)`, returning Result<void>, for each block of the array in order; stops at the first
/// error.
template <class Visit>
Result<void> visit_blocks(const format::Variable& variable, Visit&& visit) {
  if (is_single_value(variable)) return {};
  const std::uint32_t blocks = block_count(variable);
  std::uint32_t next_piece = 0;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    BlockPlace place;
    place.block = block;
    place.bytes = block_bytes(variable, block);
    place.first_piece = next_piece;
    place.piece_count =
        variable.piece_counts() != nullptr ? variable.piece_counts()->Get(block) : (place.bytes > 0 ? 1 : 0);
    if (variable.checksums() != nullptr) place.checksum = variable.checksums()->Get(block);
    next_piece += place.piece_count;
    RETURN_IF_ERROR(visit(static_cast<const BlockPlace&>(place)));
  }
  return {};
}

/// Calls `visit(const format::Variable&, const BlockPlace&)` for each block of each array.
template <class Visit>
Result<void> visit_blocks(const format::StepMetadata& metadata, Visit&& visit) {
  if (metadata.variables() == nullptr) return {};
  for (const format::Variable* variable : *metadata.variables()) {
    auto visited = visit_blocks(*variable, [&](const BlockPlace& place) { return visit(*variable, place); });
    if (!visited) return visited;
  }
  return {};
}

}  // namespace forebay::protocol
