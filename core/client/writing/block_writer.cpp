// SPDX-License-Identifier: Apache-2.0
#include "client/writing/block_writer.h"

#include <algorithm>
#include <cstring>

#include "base/bounds.h"
#include "base/checksum.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "client/writing/remote_space.h"
#include "client/writing/statistics.h"
#include "protocol/step_metadata.h"

namespace forebay::client {

using protocol::page_bytes;

namespace {

/// A write fills an aligned window of the file, up to its end: the page cache then takes pages of this size, whose
/// memory comes several times as fast as that of many small ones.
constexpr std::size_t window_bytes = std::size_t{2} << 20;
constexpr std::size_t digest_bytes = std::size_t{4} << 10;  // stays in the nearest cache for both passes
constexpr std::size_t prefetched_bytes = 2 * digest_bytes;
constexpr std::size_t cache_line_bytes = 64;
constexpr std::size_t gathered_bytes_max = std::size_t{64} << 10;  // blocks of this size and more are written directly
// A block that is spread is sent from several places at once: one that is not contiguous in memory is copied first.
constexpr std::uint64_t gathered_to_spread_bytes_max = std::uint64_t{256} << 20;
constexpr std::size_t digest_between_moves_bytes = std::size_t{256} << 10;
constexpr std::size_t pending_bytes_max = window_bytes + page_bytes;

std::uint64_t bytes_to_window_end(std::uint64_t offset) {
  return window_bytes - offset % window_bytes;
}

/// Statistics in one pass with the checksum. The processor's own prefetching ends with each page, so it is told what
/// comes: without that memory is waited for, up to half of the time.
void add_to_digest(std::span<const std::byte> bytes, bool checksums, std::uint32_t& checksum, MinMax* min_max) {
  if (!checksums && min_max == nullptr) return;
  for (std::size_t done = 0; done < bytes.size(); done += digest_bytes) {
    const auto chunk = bytes.subspan(done, std::min(digest_bytes, bytes.size() - done));
    const auto rest = bytes.subspan(done + chunk.size());
    if (rest.size() > prefetched_bytes) {
      const std::byte* next = rest.data() + prefetched_bytes - digest_bytes;
      for (std::size_t line = 0; line < digest_bytes; line += cache_line_bytes) __builtin_prefetch(next + line);
    }
    if (checksums) checksum = crc32c(chunk, checksum);
    if (min_max != nullptr) min_max->add(chunk);
  }
}

bool is_contiguous(const BlockSource& source) {
  return source.memory_count.empty();
}

/// Calls visit(const std::byte* row, bytes) for the block's rows in memory.
template <class Visit>
void for_each_source_row(const BlockSource& source, Visit&& visit) {
  static constexpr std::array<std::uint64_t, protocol::dimensions_max> zeros{};
  const std::uint64_t element_bytes = element_size(source.type);
  const BoxPair box{source.count, source.memory_count, source.memory_start, source.count,
                    Extents(zeros).first(source.count.size())};
  for_each_row(box, [&](std::uint64_t first, std::uint64_t, std::uint64_t length) {
    visit(source.data + first * element_bytes, length * element_bytes);
  });
}

void gather(const BlockSource& source, std::byte* out) {
  if (is_contiguous(source)) {
    std::memcpy(out, source.data, source.bytes);
    return;
  }
  for_each_source_row(source, [&](const std::byte* row, std::uint64_t bytes) {
    std::memcpy(out, row, bytes);
    out += bytes;
  });
}

}  // namespace

BlockWriter::BlockWriter(const SegmentCache& segments, bool checksums, bool statistics)
    : segments_(segments),
      checksums_(checksums),
      statistics_(statistics),
      small_{GrowingBuffer(pending_bytes_max)},
      paged_{GrowingBuffer(pending_bytes_max)} {}

BlockDigest BlockWriter::digest(std::span<const std::byte> block, DataType type) const {
  BlockDigest digest;
  if (block.empty()) return digest;
  const bool with_statistics = statistics_ && has_order(type);
  MinMax min_max(type);
  add_to_digest(block, checksums_, digest.checksum, with_statistics ? &min_max : nullptr);
  if (with_statistics) digest.statistics = min_max.result();
  return digest;
}

Result<BlockDigest> BlockWriter::write(const BlockSource& source, std::span<const format::Piece> pieces) {
  BlockDigest result;
  if (source.bytes == 0) return result;
  if (source.bytes >= gathered_bytes_max || pieces.size() > 1) {
    ASSIGN_OR_RETURN(const bool written, write_side_by_side(source, pieces, result));
    if (!written) RETURN_IF_ERROR(write_large(source, pieces, result));
    return result;
  }
  ASSIGN_OR_RETURN(auto room, reserve(source.bytes < page_bytes ? small_ : paged_, pieces.front()));
  gather(source, room);
  return digest({room, source.bytes}, source.type);
}

Result<bool> BlockWriter::write_side_by_side(const BlockSource& source, std::span<const format::Piece> pieces,
                                             BlockDigest& result) {
  if (pieces.size() < 2) return false;
  struct Place {
    format::Piece piece;
    std::uint64_t begin = 0;  // in the block
  };
  struct Target {
    std::shared_ptr<RemoteSpace> space;
    std::vector<Place> places;
  };
  std::vector<Target> targets;
  std::vector<Place> here;
  std::uint64_t begin = 0;
  for (const format::Piece& piece : pieces) {
    const auto segment = segments_.find(piece.segment());
    if (!segment) return false;
    if (const auto* file = dynamic_cast<const RemoteSpaceFile*>(&segment->file())) {
      auto target = std::ranges::find(targets, file->space(), &Target::space);
      if (target == targets.end()) target = targets.insert(target, {file->space(), {}});
      target->places.push_back({piece, begin});
    } else {
      here.push_back({piece, begin});
    }
    begin += piece.length();
  }
  if (targets.size() < 2) return false;
  std::unique_ptr<std::byte[]> gathered;
  if (!is_contiguous(source)) {
    if (source.bytes > gathered_to_spread_bytes_max) return false;
    gathered = std::make_unique_for_overwrite<std::byte[]>(source.bytes);
    gather(source, gathered.get());
  }
  const std::span<const std::byte> block(gathered ? gathered.get() : source.data, source.bytes);
  fail_point("client.put.before_write");
  std::vector<DataLane> lanes;
  for (const Target& target : targets) {
    std::vector<DataLane::Store> stores;
    for (const auto& [piece, place] : target.places)
      stores.push_back({piece.segment(), piece.offset(), block.subspan(place, piece.length())});
    ASSIGN_OR_RETURN(auto lane, target.space->lane(std::move(stores)));
    lanes.push_back(std::move(lane));
  }
  const bool with_statistics = statistics_ && has_order(source.type);
  MinMax min_max(source.type);
  std::span<const std::byte> rest = block;
  move_side_by_side(lanes, [&] {
    const auto chunk = rest.first(std::min(rest.size(), digest_between_moves_bytes));
    add_to_digest(chunk, checksums_, result.checksum, with_statistics ? &min_max : nullptr);
    rest = rest.subspan(chunk.size());
    return !rest.empty();
  });
  if (with_statistics) result.statistics = min_max.result();
  Result<void> done;
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (auto sent = targets[i].space->sent(*lanes[i].result()); !sent && done) done = std::move(sent);
  for (const auto& [piece, place] : here)
    if (done) done = write_at(piece.segment(), piece.offset(), block.subspan(place, piece.length()));
  RETURN_IF_ERROR(done);
  return true;
}

Result<void> BlockWriter::write_large(const BlockSource& source, std::span<const format::Piece> pieces,
                                      BlockDigest& result) {
  const bool with_statistics = statistics_ && has_order(source.type);
  MinMax min_max(source.type);
  std::size_t piece = 0;
  std::uint64_t in_piece = 0;
  // Blocks have bytes, and pieces for all of them: there is a next one until all are written.
  const auto next_bytes = [&]() -> std::size_t {
    const std::uint64_t left = pieces[piece].length() - in_piece;
    return std::min(left, bytes_to_window_end(pieces[piece].offset() + in_piece));
  };
  const auto write_next = [&](std::span<const std::byte> bytes) -> Result<void> {
    add_to_digest(bytes, checksums_, result.checksum, with_statistics ? &min_max : nullptr);
    fail_point("client.put.before_write");
    RETURN_IF_ERROR(write_at(pieces[piece].segment(), pieces[piece].offset() + in_piece, bytes));
    in_piece += bytes.size();
    if (in_piece == pieces[piece].length()) {
      ++piece;
      in_piece = 0;
    }
    return {};
  };

  if (is_contiguous(source)) {
    for (std::span<const std::byte> rest(source.data, source.bytes); !rest.empty();) {
      const std::size_t bytes = next_bytes();
      RETURN_IF_ERROR(write_next(rest.first(bytes)));
      rest = rest.subspan(bytes);
    }
  } else {
    if (!window_) window_ = std::make_unique_for_overwrite<std::byte[]>(window_bytes);
    std::size_t filled = 0;
    std::size_t wanted = next_bytes();
    std::uint64_t left = source.bytes;
    Result<void> written;
    for_each_source_row(source, [&](const std::byte* row, std::uint64_t bytes) {
      while (bytes > 0 && written) {
        const std::size_t part = std::min<std::uint64_t>(bytes, wanted - filled);
        std::memcpy(window_.get() + filled, row, part);
        row += part;
        bytes -= part;
        filled += part;
        if (filled < wanted) continue;
        written = write_next({window_.get(), filled});
        left -= filled;
        filled = 0;
        if (left > 0) wanted = next_bytes();
      }
    });
    if (!written) return written;
  }
  if (with_statistics) result.statistics = min_max.result();
  return {};
}

Result<void> BlockWriter::write_bytes(std::span<const std::byte> bytes, std::span<const format::Piece> pieces) {
  if (pieces.size() == 1 && bytes.size() < gathered_bytes_max) {
    ASSIGN_OR_RETURN(auto room, reserve(small_, pieces.front()));
    std::memcpy(room, bytes.data(), bytes.size());
    return {};
  }
  return write_apart(bytes, pieces);
}

Result<void> BlockWriter::write_apart(std::span<const std::byte> bytes, std::span<const format::Piece> pieces) {
  for (const format::Piece& piece : pieces) {
    RETURN_IF_ERROR(write_at(piece.segment(), piece.offset(), bytes.first(piece.length())));
    bytes = bytes.subspan(piece.length());
  }
  return {};
}

Result<std::byte*> BlockWriter::reserve(Pending& pending, const format::Piece& piece) {
  const std::uint64_t end = pending.offset + pending.bytes;
  const bool follows = pending.bytes > 0 && piece.segment() == pending.segment && piece.offset() >= end &&
                       piece.offset() - end < page_bytes &&
                       piece.offset() + piece.length() - pending.offset <= bytes_to_window_end(pending.offset);
  if (!follows) {
    RETURN_IF_ERROR(write_out(pending));
    pending.segment = piece.segment();
    pending.offset = piece.offset();
  }
  const std::size_t begin = piece.offset() - pending.offset;
  // A page more, for the zeros that fill the last one.
  RETURN_IF_ERROR(pending.buffer.reserve(begin + piece.length() + page_bytes, pending.bytes));
  if (follows) std::memset(pending.buffer.data() + pending.bytes, 0, begin - pending.bytes);
  pending.bytes = begin + piece.length();
  return pending.buffer.data() + begin;
}

Result<void> BlockWriter::write_out(Pending& pending) {
  if (pending.bytes == 0) return {};
  const std::uint64_t end = round_up(pending.offset + pending.bytes, page_bytes);
  const std::size_t padded = end - pending.offset;
  std::memset(pending.buffer.data() + pending.bytes, 0, padded - pending.bytes);
  auto written = write_at(pending.segment, pending.offset, {pending.buffer.data(), padded});
  if (written) pending.bytes = 0;
  return written;
}

Result<void> BlockWriter::flush() {
  // A small step, one block and its metadata behind it, goes out in one write.
  for (auto [first, second] : {std::pair(&paged_, &small_), std::pair(&small_, &paged_)}) {
    if (first->bytes == 0 || second->bytes == 0 || first->segment != second->segment) continue;
    const std::uint64_t end = round_up(first->offset + first->bytes, page_bytes);
    if (second->offset != end || end - first->offset + second->bytes > window_bytes) continue;
    const std::size_t gap = end - first->offset - first->bytes;
    const std::size_t together = first->bytes + gap + second->bytes;
    RETURN_IF_ERROR(first->buffer.reserve(together + page_bytes, first->bytes));
    std::memset(first->buffer.data() + first->bytes, 0, gap);
    std::memcpy(first->buffer.data() + first->bytes + gap, second->buffer.data(), second->bytes);
    first->bytes = together;
    second->bytes = 0;
    break;
  }
  RETURN_IF_ERROR(write_out(paged_));
  return write_out(small_);
}

void BlockWriter::discard() noexcept {
  small_.bytes = 0;
  paged_.bytes = 0;
}

Result<void> BlockWriter::write_at(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!last_segment_ || last_segment_->number() != segment) {
    last_segment_ = segments_.find(segment);
    if (!last_segment_)
      return fail(ErrorCode::protocol, "the server granted space in a segment that it did not hand over",
                  "segment " + std::to_string(segment));
  }
  auto written = last_segment_->file().write_at(offset, bytes);
  if (!written) written.error().where = last_segment_->place(offset);
  return written;
}

}  // namespace forebay::client
