// SPDX-License-Identifier: Apache-2.0
// Rows of a block of which some lies on another node. A request for each would cost a round trip each.
#include <algorithm>
#include <cstring>

#include "base/return_error.h"
#include "client/reading/block_reader.h"

namespace forebay::client {
namespace {

// What lies between two rows is fetched with them if a frame of its own would hardly be less.
constexpr std::uint64_t joined_gap_bytes_max = 512;
constexpr std::uint64_t request_bytes_max = std::uint64_t{8} << 20;
constexpr std::size_t request_extents_max = 2048;

}  // namespace

Result<void> BlockReader::fetch_rows(std::span<const Row> rows, std::uint64_t row_bytes) {
  struct Part {
    std::uint64_t place = 0;  // in what comes
    std::uint64_t bytes = 0;
    std::byte* out = nullptr;
  };
  std::vector<wire::Extent> extents;
  std::vector<Part> parts;
  std::vector<std::byte> gathered;
  std::uint64_t bytes = 0;
  const auto fetch = [&]() -> Result<void> {
    gathered.resize(bytes);
    RETURN_IF_ERROR(step_.link().fetch(step_.pin(), extents, gathered));
    for (const Part& part : parts) std::memcpy(part.out, gathered.data() + part.place, part.bytes);
    extents.clear();
    parts.clear();
    bytes = 0;
    return {};
  };
  std::uint32_t number = 0;       // of the piece that the row begins in
  std::uint64_t piece_begin = 0;  // in the block
  std::uint32_t last_piece = 0;
  for (const Row& row : rows) {
    std::uint64_t offset = row.offset;
    for (std::uint64_t left = row_bytes; left > 0;) {
      if (number == place_.piece_count)
        return fail(ErrorCode::corrupt, "a block's pieces do not add up to its size", step_.where());
      const format::Piece& piece = protocol::piece_of(*variable_, place_.first_piece + number);
      if (offset - piece_begin >= piece.length()) {
        piece_begin += piece.length();
        ++number;
        continue;
      }
      if (!segment_ || segment_->number() != piece.segment()) {
        ASSIGN_OR_RETURN(segment_, step_.pin().segment(piece.segment()));
      }
      RETURN_IF_ERROR(segment_->check(piece.member(), piece.offset(), piece.length()));
      const std::uint64_t from = piece.offset() + (offset - piece_begin);
      const std::uint64_t length = std::min(left, piece.length() - (offset - piece_begin));
      if (!segment_->is_remote()) {
        RETURN_IF_ERROR(segment_->file().read_at(from, {row.out + (row_bytes - left), length}));
        offset += length;
        left -= length;
        continue;
      }
      // One request is for one server.
      if (!extents.empty() && extents.back().member() != piece.member()) RETURN_IF_ERROR(fetch());
      // Between two pieces may lie what is not the step's.
      const bool same = !extents.empty() && last_piece == number;
      const std::uint64_t reached = same ? extents.back().offset() + extents.back().length() : 0;
      const bool joins = same && from >= reached && from - reached <= joined_gap_bytes_max;
      if (joins) {
        const std::uint64_t begin = extents.back().offset();
        bytes += from + length - reached;
        extents.back() = wire::Extent(piece.segment(), piece.member(), 0, begin, from + length - begin);
      } else {
        extents.emplace_back(piece.segment(), piece.member(), 0, from, length);
        bytes += length;
      }
      last_piece = number;
      parts.push_back({bytes - length, length, row.out + (row_bytes - left)});
      offset += length;
      left -= length;
      if (bytes >= request_bytes_max || extents.size() >= request_extents_max) RETURN_IF_ERROR(fetch());
    }
  }
  return bytes > 0 ? fetch() : Result<void>();
}

}  // namespace forebay::client
