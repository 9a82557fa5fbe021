// SPDX-License-Identifier: Apache-2.0
#include "streams/step_check.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bounds.h"
#include "base/checksum.h"
#include "base/coverage.h"
#include "base/return_error.h"
#include "protocol/step_agreement.h"

namespace forebay::server {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

/// Goes on with the checksum of what came before.
Result<std::uint32_t> checksum_with(const format::Piece& piece, std::uint32_t checksum, OpenedSegments& segments,
                                    std::vector<std::byte>& chunk) {
  for (std::uint64_t done = 0; done < piece.length();) {
    const auto part = std::span(chunk).first(std::min<std::uint64_t>(chunk.size(), piece.length() - done));
    RETURN_IF_ERROR(segments.read(piece, done, part));
    checksum = crc32c(part, checksum);
    done += part.size();
  }
  return checksum;
}

std::string where_of(const format::Variable& variable, const protocol::BlockPlace& place) {
  return fmt::format("variable {}, block {}", protocol::name_of(variable), place.block);
}

Result<void> check_block(const format::Variable& variable, const protocol::BlockPlace& place, OpenedSegments& segments,
                         std::vector<std::byte>& chunk) {
  std::uint32_t checksum = 0;
  for (std::uint32_t i = 0; i < place.piece_count; ++i) {
    ASSIGN_OR_RETURN(checksum,
                     checksum_with(protocol::piece_of(variable, place.first_piece + i), checksum, segments, chunk));
  }
  if (checksum == *place.checksum) return {};
  return fail(ErrorCode::corrupt, "checksum mismatch", where_of(variable, place));
}

/// Not on the home, which reads the step. A piece that names a member which does not have its segment counts as read,
/// and so as corrupt.
bool lies_elsewhere(const SegmentLayout& layout, const format::Piece& piece) {
  return piece.member() != 0 && layout.member_of(piece.segment()) == piece.member();
}

bool lies_elsewhere(const SegmentLayout& layout, const format::Variable& variable, const protocol::BlockPlace& place) {
  for (std::uint32_t i = 0; i < place.piece_count; ++i)
    if (lies_elsewhere(layout, protocol::piece_of(variable, place.first_piece + i))) return true;
  return false;
}

/// With the checksums of what lies on the home.
Result<BlockElsewhere> block_elsewhere(const SegmentLayout& layout, std::uint64_t segment_bytes,
                                       const format::Variable& variable, const protocol::BlockPlace& place,
                                       OpenedSegments& segments, std::vector<std::byte>& chunk) {
  BlockElsewhere block;
  block.where = where_of(variable, place);
  block.checksum = place.checksum;
  for (std::uint32_t i = 0; i < place.piece_count; ++i) {
    const format::Piece& piece = protocol::piece_of(variable, place.first_piece + i);
    if (piece.length() == 0) continue;
    BlockElsewhere::Piece& part = block.pieces.emplace_back();
    part.member = piece.member();
    part.extent = {piece.segment(), piece.offset(), piece.length()};
    if (!lies_elsewhere(layout, piece)) {
      ASSIGN_OR_RETURN(part.checksum, checksum_with(piece, 0, segments, chunk));
    } else if (!range_within(piece.offset(), piece.length(), segment_bytes)) {
      return fail(ErrorCode::corrupt, "a piece lies outside its segment", block.where);
    }
  }
  return block;
}

Result<void> check_attribute_set(const journal::AttributeSetT& set, OpenedSegments& segments) {
  ASSIGN_OR_RETURN(const auto bytes, read_attribute_set(set, segments));
  RETURN_IF_ERROR(protocol::decode_attributes(bytes));
  return {};
}

// The ranks agree on all variables.
std::map<std::string, std::string> find_gaps(const std::vector<protocol::RankMetadata>& ranks) {
  struct Array {
    std::span<const std::uint64_t> shape;
    std::vector<CoveringBlock> blocks;
  };
  std::map<std::string_view, Array> arrays;
  for (const protocol::RankMetadata& part : ranks) {
    if (part.metadata->variables() == nullptr) continue;
    for (const format::Variable* variable : *part.metadata->variables()) {
      if (protocol::kind_of(*variable) != ShapeKind::global_array) continue;
      Array& array = arrays[protocol::name_of(*variable)];
      const std::size_t dimensions = variable->dimensions();
      array.shape = std::span(variable->shape()->data(), dimensions);
      for (std::uint32_t block = 0; block < protocol::block_count(*variable); ++block) {
        array.blocks.push_back({std::span(variable->starts()->data() + block * dimensions, dimensions),
                                protocol::block_extents(*variable, block), part.rank});
      }
    }
  }
  std::map<std::string, std::string> gaps;
  for (const auto& [name, array] : arrays) {
    if (std::string text = to_text(coverage_of(array.shape, array.blocks)); !text.empty())
      gaps.emplace(name, std::move(text));
  }
  return gaps;
}

}  // namespace

bool BlockElsewhere::lies_on(std::uint16_t member) const {
  return std::ranges::find(pieces, member, &Piece::member) != pieces.end();
}

Result<StepCheck> check_step(const journal::StepCommittedT& step, const SegmentLayout& layout,
                             std::uint64_t segment_bytes, const SegmentOpener& open, CheckedSets& sets,
                             BlocksRead blocks) {
  StepCheck check;
  OpenedSegments segments(layout, segment_bytes, open);
  std::vector<std::byte> chunk(chunk_bytes);
  std::vector<std::vector<std::byte>> texts;
  std::vector<protocol::RankMetadata> ranks;
  for (const auto& part : step.parts) {
    const auto at = [&](Error error) {
      error.where =
          fmt::format("step {}, rank {}{}{}", step.step, part->rank, error.where.empty() ? "" : ", ", error.where);
      return fail(std::move(error));
    };
    if (part->attributes) {
      const CheckedSets::value_type key{step.epoch, part->attributes->step, part->rank};
      if (!sets.contains(key)) {
        if (auto whole = check_attribute_set(*part->attributes, segments); !whole) return at(std::move(whole.error()));
        sets.insert(key);
      }
    }
    auto bytes = read_metadata(*part, segments);
    if (!bytes) return at(std::move(bytes.error()));
    auto metadata = protocol::decode_step_metadata(*bytes);
    if (!metadata) return at(std::move(metadata.error()));
    texts.push_back(std::move(*bytes));  // which leaves the bytes where they are
    ranks.push_back({part->rank, *metadata});
    auto visited = protocol::visit_blocks(
        **metadata, [&](const format::Variable& variable, const protocol::BlockPlace& place) -> Result<void> {
          ++check.blocks;
          if (lies_elsewhere(layout, variable, place)) {
            if (blocks == BlocksRead::home) return {};
            ASSIGN_OR_RETURN(auto block, block_elsewhere(layout, segment_bytes, variable, place, segments, chunk));
            block.where = fmt::format("step {}, rank {}, {}", step.step, part->rank, block.where);
            check.elsewhere.push_back(std::move(block));
            return {};
          }
          if (blocks == BlocksRead::elsewhere) return {};
          if (!place.checksum) {
            ++check.blocks_without_checksum;
            return {};
          }
          return check_block(variable, place, segments, chunk);
        });
    if (!visited) return at(std::move(visited.error()));
  }
  if (auto agreed = protocol::check_agreement(ranks); !agreed) {
    check.disagreement = fmt::format("step {}: {}", step.step, agreed.error().what);
  } else {
    check.gaps = find_gaps(ranks);
  }
  return check;
}

}  // namespace forebay::server
