// SPDX-License-Identifier: Apache-2.0
// Blocks of which some lies on another node: which extents are asked for, and where they go.
#include <algorithm>

#include "base/return_error.h"
#include "client/reading/block_reader.h"

namespace forebay::client {
namespace {

// Rows of this size and more are received where they belong; shorter ones with others, and then copied.
constexpr std::uint64_t received_in_place_bytes = std::uint64_t{64} << 10;

}  // namespace

Result<bool> BlockReader::read_here(const format::Piece& piece, std::uint64_t from, std::span<std::byte> out) {
  if (!segment_ || segment_->number() != piece.segment()) {
    ASSIGN_OR_RETURN(segment_, step_.pin().segment(piece.segment()));
  }
  RETURN_IF_ERROR(segment_->check(piece.member(), piece.offset(), piece.length()));
  Result<void> read;
  if (!segment_->is_remote()) {
    read = segment_->file().read_at(from, out);
  } else {
    const auto carried = step_.pin().carried();
    if (!carried || !carried->has(wire::Extent(piece.segment(), piece.member(), 0, from, out.size()))) return false;
    read = carried->read(piece.segment(), piece.member(), from, out);
  }
  if (!read) {
    read.error().where = segment_->place(from);
    return fail(std::move(read.error()));
  }
  return true;
}

Result<void> BlockReader::add_range(RemoteReads& reads, std::uint64_t offset, std::span<std::byte> out) {
  for (std::uint32_t i = 0; i < place_.piece_count && !out.empty(); ++i) {
    const format::Piece& piece = protocol::piece_of(*variable_, place_.first_piece + i);
    if (offset >= piece.length()) {
      offset -= piece.length();
      continue;
    }
    const auto part = out.first(std::min<std::uint64_t>(out.size(), piece.length() - offset));
    const std::uint64_t from = piece.offset() + offset;
    ASSIGN_OR_RETURN(const bool here, read_here(piece, from, part));
    if (here) {
      reads.add_here(part);
    } else {
      reads.add(wire::Extent(piece.segment(), piece.member(), 0, from, part.size()), part);
    }
    out = out.subspan(part.size());
    offset = 0;
  }
  if (!out.empty()) return fail(ErrorCode::corrupt, "a block's pieces do not add up to its size", step_.where());
  return {};
}

Result<void> BlockReader::add_rows(std::span<const Row> rows, std::uint64_t row_bytes) {
  if (row_bytes >= received_in_place_bytes) {
    for (const Row& row : rows) {
      RETURN_IF_ERROR(add_range(reads_, row.offset, {row.out, row_bytes}));
      if (reads_.is_full()) RETURN_IF_ERROR(reads_.fetch());
    }
    return {};
  }
  std::uint32_t number = 0;       // of the piece that the row begins in
  std::uint64_t piece_begin = 0;  // in the block
  for (const Row& row : rows) {
    std::uint64_t offset = row.offset;
    for (std::span<std::byte> left(row.out, row_bytes); !left.empty();) {
      if (number == place_.piece_count)
        return fail(ErrorCode::corrupt, "a block's pieces do not add up to its size", step_.where());
      const format::Piece& piece = protocol::piece_of(*variable_, place_.first_piece + number);
      if (offset - piece_begin >= piece.length()) {
        piece_begin += piece.length();
        ++number;
        continue;
      }
      const auto part = left.first(std::min<std::uint64_t>(left.size(), piece.length() - (offset - piece_begin)));
      const std::uint64_t from = piece.offset() + (offset - piece_begin);
      ASSIGN_OR_RETURN(const bool here, read_here(piece, from, part));
      if (here) {
        reads_.add_here(part);
      } else {
        reads_.add_row(wire::Extent(piece.segment(), piece.member(), 0, from, part.size()), part, number);
      }
      offset += part.size();
      left = left.subspan(part.size());
      if (reads_.is_full()) RETURN_IF_ERROR(reads_.fetch());
    }
  }
  return {};
}

}  // namespace forebay::client
