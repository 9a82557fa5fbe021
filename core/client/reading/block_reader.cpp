// SPDX-License-Identifier: Apache-2.0
#include "client/reading/block_reader.h"

#include <algorithm>
#include <cstring>

#include "base/bounds.h"
#include "base/checksum.h"
#include "base/joined_checksum.h"
#include "base/return_error.h"
#include "client/reading/remote_step_file.h"

namespace forebay::client {

namespace {

// Rows that lie closer together than this are read in one go with what lies between them.
constexpr std::uint64_t gap_bytes_max = std::uint64_t{16} << 10;
// Rows of this size and more are worth a read of their own, straight to where they belong.
constexpr std::uint64_t direct_row_bytes = std::uint64_t{32} << 10;
constexpr std::size_t rows_at_once = 4096;
constexpr std::uint64_t short_range_bytes = 4096;
constexpr std::uint64_t read_ahead_bytes = std::uint64_t{64} << 10;
// Some kernels give up the processor between reads only: a writer that was woken meanwhile would wait for milliseconds.
constexpr std::uint64_t read_bytes_max = std::uint64_t{1} << 20;

}  // namespace

BlockReader::~BlockReader() {
  if (buffer_) step_.link().buffers().give_back(std::move(buffer_));
}

std::byte* BlockReader::buffer() {
  if (!buffer_) buffer_ = step_.link().buffers().take();
  return buffer_.get();
}

void BlockReader::select(const StepState::BlockReference& block) {
  selected_ = block;
  const bool next = variable_ == block.variable && block.block == place_.block + 1;
  if (next && block.variable->piece_counts() != nullptr) {
    // The general way walks over all blocks before this one.
    place_.block = block.block;
    place_.bytes = protocol::block_bytes(*variable_, block.block);
    place_.first_piece += place_.piece_count;
    place_.piece_count = variable_->piece_counts()->Get(block.block);
    place_.checksum.reset();
    if (variable_->checksums() != nullptr) place_.checksum = variable_->checksums()->Get(block.block);
  } else {
    variable_ = block.variable;
    place_ = protocol::block_place(*variable_, block.block);
  }
  // Segments of a member on this node are asked for now: how a block is read and checked depends on where it is.
  ReaderLink& link = step_.link();
  remote_ = false;
  for (std::uint32_t i = 0; !remote_ && i < place_.piece_count; ++i) {
    const format::Piece& piece = protocol::piece_of(*variable_, place_.first_piece + i);
    remote_ = piece.member() == 0 ? link.is_remote() : link.segment_here(piece.segment(), piece.member()) == nullptr;
  }
}

Result<void> BlockReader::read_piece(const format::Piece& piece, std::uint64_t offset, std::span<std::byte> out,
                                     std::uint32_t* checksum) {
  if (!segment_ || segment_->number() != piece.segment()) {
    ASSIGN_OR_RETURN(segment_, step_.pin().segment(piece.segment()));
  }
  RETURN_IF_ERROR(segment_->check(piece.member(), piece.offset(), piece.length()));
  const bool remote = segment_->is_remote();
  for (std::uint64_t from = piece.offset() + offset; !out.empty();) {
    // From another node all of it is one request, and its checksum is taken while it arrives.
    const std::span<std::byte> chunk = remote ? out : out.first(std::min<std::uint64_t>(out.size(), read_bytes_max));
    const wire::Extent extent(piece.segment(), piece.member(), 0, from, chunk.size());
    auto read =
        remote ? RemoteStepFile::read(step_.pin(), extent, chunk, checksum) : segment_->file().read_at(from, chunk);
    if (!read) {
      read.error().where = segment_->place(from);
      return read;
    }
    if (checksum != nullptr && !remote) *checksum = crc32c(chunk, *checksum);
    out = out.subspan(chunk.size());
    from += chunk.size();
  }
  return {};
}

Result<void> BlockReader::read_range(std::uint64_t offset, std::span<std::byte> out, std::uint32_t* checksum) {
  if (place_.piece_count > 1 && is_fetched()) {
    RemoteReads reads(step_);
    reads.begin_block(selected_, std::nullopt, checksum != nullptr);
    RETURN_IF_ERROR(add_range(reads, offset, out));
    RETURN_IF_ERROR(reads.fetch());
    if (checksum != nullptr) *checksum = joined_checksum(*checksum, reads.taken(), out.size());
    return {};
  }
  for (std::uint32_t i = 0; i < place_.piece_count && !out.empty(); ++i) {
    const format::Piece& piece = protocol::piece_of(*variable_, place_.first_piece + i);
    if (offset >= piece.length()) {
      offset -= piece.length();
      continue;
    }
    const std::size_t bytes = std::min<std::uint64_t>(out.size(), piece.length() - offset);
    RETURN_IF_ERROR(read_piece(piece, offset, out.first(bytes), checksum));
    out = out.subspan(bytes);
    offset = 0;
  }
  return {};
}

Result<void> BlockReader::read_short(std::uint64_t offset, std::span<std::byte> out) {
  // A server on another node sends what belongs to the step, and no byte more.
  if (place_.piece_count != 1 || out.size() > short_range_bytes || is_remote()) return read_range(offset, out);
  StepState::ReadAhead& ahead = step_.read_ahead();
  const std::unique_lock lock(ahead.mutex, std::try_to_lock);
  if (!lock) return read_range(offset, out);
  const format::Piece& piece = protocol::piece_of(*variable_, place_.first_piece);
  const std::uint64_t from = piece.offset() + offset;
  // What was read ahead was checked for this member.
  const bool same_segment = piece.segment() == ahead.segment && piece.member() == ahead.member;
  const bool here = same_segment && from >= ahead.offset && range_within(from - ahead.offset, out.size(), ahead.bytes);
  if (!here) {
    const bool follows =
        same_segment && ahead.last_end > 0 && from >= ahead.last_end && from - ahead.last_end <= short_range_bytes;
    ahead.segment = piece.segment();
    ahead.member = piece.member();
    ahead.last_end = from + out.size();
    ahead.bytes = 0;
    if (!follows) return read_range(offset, out);
    // This read checks the piece's bounds; the next ones take what lies behind it, which is in the segment as well.
    RETURN_IF_ERROR(read_range(offset, out));
    if (!ahead.buffer) ahead.buffer = step_.link().buffers().take();
    const std::uint64_t bytes = std::min(read_ahead_bytes, segment_->bytes() - ahead.last_end);
    if (auto read = segment_->file().read_at(ahead.last_end, {ahead.buffer.get(), bytes}); !read) {
      read.error().where = segment_->place(ahead.last_end);
      return read;
    }
    ahead.offset = ahead.last_end;
    ahead.bytes = bytes;
    return {};
  }
  ahead.last_end = from + out.size();
  std::memcpy(out.data(), ahead.buffer.get() + (from - ahead.offset), out.size());
  return {};
}

Result<void> BlockReader::read_rows(std::span<const Row> rows, std::uint64_t row_bytes, std::uint32_t* checksum) {
  std::size_t first = 0;
  while (first < rows.size()) {
    std::size_t end = first + 1;
    const std::uint64_t from = rows[first].offset;
    while (end < rows.size() && rows[end].offset - (rows[end - 1].offset + row_bytes) <= gap_bytes_max &&
           rows[end].offset + row_bytes - from <= BufferPool::buffer_bytes) {
      ++end;
    }
    if (end - first == 1 || row_bytes >= direct_row_bytes) {
      const std::span<std::byte> row(rows[first].out, row_bytes);
      RETURN_IF_ERROR(checksum != nullptr ? read_range(from, row, checksum) : read_short(from, row));
      ++first;
      continue;
    }
    std::byte* gathered = buffer();
    RETURN_IF_ERROR(read_range(from, {gathered, rows[end - 1].offset + row_bytes - from}, checksum));
    for (; first < end; ++first) std::memcpy(rows[first].out, gathered + (rows[first].offset - from), row_bytes);
  }
  return {};
}

bool BlockReader::is_to_check(const StepState::BlockReference& block, bool whole) const {
  if (place_.bytes == 0) return false;
  switch (step_.link().options().verify) {
    case Verify::none:
      return false;
    case Verify::read:
      return true;
    case Verify::first:
      return !step_.is_verified(block);
    case Verify::automatic:
      break;
  }
  if (!whole || !place_.checksum) return false;
  return is_remote() || !(step_.is_fresh() || step_.is_verified(block));
}

Result<void> BlockReader::check_that_checksum_exists() const {
  if (place_.checksum) return {};
  return fail(ErrorCode::unsupported,
              "the block was written without a checksum, so it cannot be verified; read it with Verify=none");
}

bool BlockReader::is_fetched() const {
  if (!is_remote()) return false;
  const auto carried = step_.pin().carried();
  return !carried || !carried->is_whole();
}

Result<void> BlockReader::named(const StepState::BlockReference& block, Result<void> done) {
  const std::string name = "block " + std::to_string(block.number);
  if (!done && !done.error().where.starts_with(name + ","))
    done.error().where = name + (done.error().where.empty() ? "" : ", " + done.error().where);
  return done;
}

Result<void> BlockReader::read_checked(const StepState::BlockReference& block, std::byte* out) {
  RETURN_IF_ERROR(check_that_checksum_exists());
  std::uint32_t checksum = 0;
  const bool at_once = out != nullptr && is_remote();
  const std::uint64_t chunk_bytes_max = at_once ? place_.bytes : BufferPool::buffer_bytes;
  for (std::uint64_t done = 0; done < place_.bytes;) {
    const std::size_t bytes = std::min<std::uint64_t>(chunk_bytes_max, place_.bytes - done);
    const std::span<std::byte> chunk(out != nullptr ? out + done : buffer(), bytes);
    RETURN_IF_ERROR(read_range(done, chunk, &checksum));
    done += bytes;
  }
  return step_.compare(block, *place_.checksum, checksum);
}

Result<void> BlockReader::verify(const StepState::BlockReference& block) {
  select(block);
  if (place_.bytes == 0) return {};
  return named(block, read_checked(block, nullptr));
}

Result<void> BlockReader::read_whole(const StepState::BlockReference& block, std::byte* out) {
  select(block);
  return named(block, is_to_check(block, true) ? read_checked(block, out) : read_range(0, {out, place_.bytes}));
}

Result<void> BlockReader::read_box(const StepState::BlockReference& block, const BoxPair& box, std::byte* out) {
  select(block);
  return named(block, read_selected(block, box, out));
}

Result<void> BlockReader::read_selected(const StepState::BlockReference& block, const BoxPair& box, std::byte* out) {
  const std::uint64_t element_bytes = element_size(protocol::type_of(*variable_));
  std::uint64_t box_bytes = element_bytes;
  for (const std::uint64_t extent : box.count) box_bytes *= extent;
  if (box_bytes == 0) return {};
  // All rows of a block are its bytes in order, so that the checksum is taken while they are read.
  const bool whole = box_bytes == place_.bytes;
  const bool check = is_to_check(block, whole);
  if (check) RETURN_IF_ERROR(check_that_checksum_exists());
  if (check && !whole) RETURN_IF_ERROR(read_checked(block, nullptr));
  const bool fetched = is_fetched();
  if (fetched) reads_.begin_block(block, check && whole ? place_.checksum : std::nullopt, check && whole);
  std::uint32_t taken = 0;
  std::uint32_t* const checksum = check && whole && !fetched ? &taken : nullptr;

  std::uint64_t row_bytes = 0;
  Result<void> done;
  const auto read = [&] {
    done = fetched ? add_rows(rows_, row_bytes) : read_rows(rows_, row_bytes, checksum);
    rows_.clear();
  };
  rows_.clear();
  for_each_row(box, [&](std::uint64_t first, std::uint64_t second, std::uint64_t length) {
    if (!done) return;
    row_bytes = length * element_bytes;
    rows_.push_back({first * element_bytes, out + second * element_bytes});
    if (rows_.size() == rows_at_once) read();
  });
  if (!done) return done;
  read();
  if (!done || checksum == nullptr) return done;
  return step_.compare(block, *place_.checksum, taken);
}

}  // namespace forebay::client
