// SPDX-License-Identifier: Apache-2.0
// Reads bytes of blocks from their segments: ranges, rows of boxes, whole blocks with their checksum. Made for one
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/reading/boxes.h"
#include "client/reading/remote_reads.h"
#include "client/reading/step_state.h"

namespace forebay::client {

class BlockReader {
 public:
  explicit BlockReader(const StepState& step) noexcept : step_(step), reads_(step) {}
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  /// Copies a box of a block: `box.first_*` describe the block, `box.second_*` the array at `out`. Checks the block as
  /// the reader's options say. What lies on other nodes is there, and checked, after finish(). Errors: corrupt,
  /// io_error; they name the block.
  Result<void> read_box(const StepState::BlockReference& block, const BoxPair& box, std::byte* out);

  /// Fetches what the boxes have on other nodes.
  Result<void> finish() { return reads_.finish(); }

  /// Copies all bytes of a block, checked as the reader's options say. Errors as above.
  Result<void> read_whole(const StepState::BlockReference& block, std::byte* out);

  /// Checks the CRC-32C of a whole block. unsupported if it was written without one.
  Result<void> verify(const StepState::BlockReference& block);

 private:
  struct Row {
    std::uint64_t offset = 0;  ///< in the block
    std::byte* out = nullptr;
  };

  /// `checksum`: CRC-32C of what comes before these bytes, then of all; null: none is taken.
  Result<void> read_range(std::uint64_t offset, std::span<std::byte> out, std::uint32_t* checksum = nullptr);
  /// Like read_range, by way of the step's read-ahead if reads come one behind another.
  Result<void> read_short(std::uint64_t offset, std::span<std::byte> out);
  Result<void> read_piece(const format::Piece& piece, std::uint64_t offset, std::span<std::byte> out,
                          std::uint32_t* checksum);
  // block_reader_remote.cpp: what is here is read at once, the rest added to `reads`.
  Result<void> add_range(RemoteReads& reads, std::uint64_t offset, std::span<std::byte> out);
  Result<void> add_rows(std::span<const Row> rows, std::uint64_t row_bytes);
  /// Bytes of one piece, with the segment that holds them: on this node, or carried by the step. False: neither.
  Result<bool> read_here(const format::Piece& piece, std::uint64_t from, std::span<std::byte> out);
  /// `checksum`, where it is taken: the rows are all of a block, or continue it, in its order.
  Result<void> read_rows(std::span<const Row> rows, std::uint64_t row_bytes, std::uint32_t* checksum);
  /// Reads the whole block, checking it on the way; `out` null: only checks.
  Result<void> read_checked(const StepState::BlockReference& block, std::byte* out);
  /// Whether a read of the selected block, `whole` or of a part, is to be checked, as the reader's options say.
  bool is_to_check(const StepState::BlockReference& block, bool whole) const;
  Result<void> check_that_checksum_exists() const;
  void select(const StepState::BlockReference& block);
  /// Some of the selected block comes from another node, or may.
  bool is_remote() const noexcept { return remote_; }
  /// The same, and the step has not brought all its bytes along.
  bool is_fetched() const;
  Result<void> read_selected(const StepState::BlockReference& block, const BoxPair& box, std::byte* out);
  /// The block's number before the place of an error.
  static Result<void> named(const StepState::BlockReference& block, Result<void> done);
  std::byte* buffer();

  const StepState& step_;
  StepState::BlockReference selected_;
  const format::Variable* variable_ = nullptr;
  protocol::BlockPlace place_;
  std::shared_ptr<Segment> segment_;
  bool remote_ = false;
  BufferPool::Buffer buffer_;
  std::vector<Row> rows_;
  RemoteReads reads_;  // of read_box()
};

}  // namespace forebay::client
