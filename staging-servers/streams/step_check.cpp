// SPDX-License-Identifier: Apache-2.0
#include "streams/step_check.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "base/bounds.h"
#include "base/checksum.h"
#include "base/return_error.h"
#include "protocol/step_metadata.h"

namespace forebay::server {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
constexpr std::uint64_t metadata_bytes_max = std::uint64_t{1} << 32;

/// The segments that one check has opened.
class OpenedSegments {
 public:
  OpenedSegments(const SegmentLayout& layout, std::uint64_t segment_bytes, const SegmentOpener& open)
      : layout_(layout), segment_bytes_(segment_bytes), open_(open) {}

  /// `extent` of the journal or of a step's metadata; `done` of its bytes were read before.
  template <class AnyExtent>
  Result<void> read(const AnyExtent& extent, std::uint64_t done, std::span<std::byte> bytes) {
    const std::uint32_t segment = extent.segment();
    const std::uint64_t offset = extent.offset() + done;
    const std::string where = fmt::format("segment {} @ {}", segment, offset);
    if (layout_.member_of(segment) != extent.member()) {
      return fail(
          ErrorCode::corrupt,
          fmt::format("an extent names member {} of the reservation, which does not have its segment", extent.member()),
          where);
    }
    if (!range_within(offset, bytes.size(), segment_bytes_))
      return fail(ErrorCode::corrupt, "a piece lies outside its segment", where);
    auto found = files_.find(segment);
    if (found == files_.end()) {
      ASSIGN_OR_RETURN(auto file, open_(segment));
      found = files_.emplace(segment, std::move(file)).first;
    }
    return found->second->read_at(offset, bytes);
  }

 private:
  const SegmentLayout& layout_;
  std::uint64_t segment_bytes_;
  const SegmentOpener& open_;
  std::map<std::uint32_t, std::unique_ptr<File>> files_;
};

Result<std::vector<std::byte>> read_metadata(const journal::PartT& part, OpenedSegments& segments) {
  if (part.metadata_bytes > metadata_bytes_max) return fail(ErrorCode::corrupt, "metadata of an impossible size");
  std::vector<std::byte> bytes(part.metadata_bytes);
  std::size_t done = 0;
  for (const journal::Extent& extent : part.metadata) {
    if (extent.length() > bytes.size() - done)
      return fail(ErrorCode::corrupt, "the lengths of the metadata do not agree");
    RETURN_IF_ERROR(segments.read(extent, 0, std::span(bytes).subspan(done, extent.length())));
    done += extent.length();
  }
  if (done != bytes.size() || crc32c(bytes) != part.metadata_crc)
    return fail(ErrorCode::corrupt, "checksum mismatch in a step's metadata");
  return bytes;
}

Result<void> check_block(const format::Variable& variable, const protocol::BlockPlace& place, OpenedSegments& segments,
                         std::vector<std::byte>& chunk) {
  std::uint32_t checksum = 0;
  for (std::uint32_t i = 0; i < place.piece_count; ++i) {
    const format::Piece& piece = protocol::piece_of(variable, place.first_piece + i);
    std::uint64_t done = 0;
    while (done < piece.length()) {
      const auto part = std::span(chunk).first(std::min<std::uint64_t>(chunk.size(), piece.length() - done));
      RETURN_IF_ERROR(segments.read(piece, done, part));
      checksum = crc32c(part, checksum);
      done += part.size();
    }
  }
  if (checksum == *place.checksum) return {};
  return fail(ErrorCode::corrupt, "checksum mismatch",
              fmt::format("variable {}, block {}", protocol::name_of(variable), place.block));
}

}  // namespace

Result<StepCheck> check_step(const journal::StepCommittedT& step, const SegmentLayout& layout,
                             std::uint64_t segment_bytes, const SegmentOpener& open) {
  StepCheck check;
  OpenedSegments segments(layout, segment_bytes, open);
  std::vector<std::byte> chunk(chunk_bytes);
  for (const auto& part : step.parts) {
    const auto at = [&](Error error) {
      error.where =
          fmt::format("step {}, rank {}{}{}", step.step, part->rank, error.where.empty() ? "" : ", ", error.where);
      return fail(std::move(error));
    };
    auto bytes = read_metadata(*part, segments);
    if (!bytes) return at(std::move(bytes.error()));
    auto metadata = protocol::decode_step_metadata(*bytes);
    if (!metadata) return at(std::move(metadata.error()));
    auto visited = protocol::visit_blocks(
        **metadata, [&](const format::Variable& variable, const protocol::BlockPlace& place) -> Result<void> {
          ++check.blocks;
          if (!place.checksum) {
            ++check.blocks_without_checksum;
            return {};
          }
          return check_block(variable, place, segments, chunk);
        });
    if (!visited) return at(std::move(visited.error()));
  }
  return check;
}

}  // namespace forebay::server
