// SPDX-License-Identifier: Apache-2.0
// Bytes of a step that lie on other nodes, gathered from several blocks and then fetched together: with one request
// for each server, from all of them side by side. Made for one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "client/reading/reader_link.h"
#include "client/reading/step_state.h"

namespace forebay::client {

class RemoteReads {
 public:
  explicit RemoteReads(const StepState& step) noexcept : step_(step) {}

  /// What is added from now on is of this block, and `checked`: one behind another. With a checksum it is all of it.
  void begin_block(const StepState::BlockReference& block, std::optional<std::uint32_t> checksum, bool checked);
  /// An extent's bytes go to `out`.
  void add(const wire::Extent& extent, std::span<std::byte> out);
  /// The same by way of other memory, in one piece with what lies closely before it in the block's piece number
  /// `piece`.
  void add_row(const wire::Extent& extent, std::span<std::byte> out, std::uint32_t piece);
  /// Bytes that come next in the block, and are here already.
  void add_here(std::span<const std::byte> bytes);
  /// What was added is as much as is to be fetched at once.
  bool is_full() const noexcept;

  /// Brings what was added so far. Errors name the block.
  Result<void> fetch();
  /// CRC-32C of what was fetched of the last block, which is checked.
  std::uint32_t taken() const noexcept { return blocks_.back().taken; }
  /// The same, and there is no more: each block with a checksum is compared with it.
  Result<void> finish();

 private:
  struct Block {
    StepState::BlockReference reference;
    std::optional<std::uint32_t> checksum;
    bool checked = false;
    std::size_t first_run = 0;
    std::uint32_t taken = 0;  ///< CRC-32C of its runs that were fetched
  };
  /// Of bytes that come by way of gathered_.
  struct Row {
    std::uint64_t place = 0;
    std::span<std::byte> out;
  };

  bool checks() const noexcept { return !blocks_.empty() && blocks_.back().checked; }
  Result<void> name(Error error, std::size_t run) const;
  Result<void> compare(const Block& block) const;

  const StepState& step_;
  std::vector<Block> blocks_;  // the last one may go on
  std::vector<ReaderLink::Wanted> runs_;
  std::vector<std::pair<std::size_t, std::uint64_t>> gathered_runs_;  // number and place
  std::vector<Row> rows_;
  std::vector<std::byte> gathered_;
  std::uint64_t gathered_bytes_ = 0;
  std::optional<std::uint32_t> last_piece_;  // of the last run, if the next row may join it
};

}  // namespace forebay::client
