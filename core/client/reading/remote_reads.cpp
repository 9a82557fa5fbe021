// SPDX-License-Identifier: Apache-2.0
#include "client/reading/remote_reads.h"

#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/joined_checksum.h"
#include "base/return_error.h"

namespace forebay::client {
namespace {

// What lies between two rows is fetched with them if a frame of its own would hardly be less.
constexpr std::uint64_t joined_gap_bytes_max = 512;
constexpr std::uint64_t gathered_bytes_max = std::uint64_t{32} << 20;
constexpr std::size_t rows_max = std::size_t{64} << 10;
constexpr std::size_t runs_max = 2048;  // in one request

}  // namespace

void RemoteReads::begin_block(const StepState::BlockReference& block, std::optional<std::uint32_t> checksum,
                              bool checked) {
  blocks_.push_back({block, checksum, checked, runs_.size()});
  last_piece_.reset();
}

void RemoteReads::add(const wire::Extent& extent, std::span<std::byte> out) {
  runs_.push_back({extent, out, checks()});
  last_piece_.reset();
}

void RemoteReads::add_row(const wire::Extent& extent, std::span<std::byte> out, std::uint32_t piece) {
  // Between two pieces may lie what is not the step's.
  const bool same = last_piece_ == piece;
  const std::uint64_t reached = same ? runs_.back().extent.offset() + runs_.back().extent.length() : 0;
  if (same && extent.offset() >= reached && extent.offset() - reached <= joined_gap_bytes_max) {
    const std::uint64_t begin = runs_.back().extent.offset();
    const std::uint64_t end = extent.offset() + extent.length();
    runs_.back().extent = wire::Extent(extent.segment(), extent.member(), 0, begin, end - begin);
    gathered_bytes_ += end - reached;
  } else {
    gathered_runs_.emplace_back(runs_.size(), gathered_bytes_);
    runs_.push_back({extent, {}, checks()});
    gathered_bytes_ += extent.length();
  }
  rows_.push_back({gathered_bytes_ - extent.length(), out});
  last_piece_ = piece;
}

void RemoteReads::add_here(std::span<const std::byte> bytes) {
  last_piece_.reset();
  if (!checks() || bytes.empty()) return;
  const bool goes_on = runs_.size() > blocks_.back().first_run && runs_.back().is_here && runs_.back().out.empty();
  if (!goes_on) {
    runs_.push_back({wire::Extent(), {}, true});
    runs_.back().is_here = true;
  }
  ReaderLink::Wanted& run = runs_.back();
  run.checksum = crc32c(bytes, run.checksum);
  run.extent = wire::Extent(0, 0, 0, 0, run.extent.length() + bytes.size());
}

bool RemoteReads::is_full() const noexcept {
  return runs_.size() >= runs_max || rows_.size() >= rows_max || gathered_bytes_ >= gathered_bytes_max;
}

Result<void> RemoteReads::name(Error error, std::size_t run) const {
  const Block* found = nullptr;
  for (const Block& block : blocks_)
    if (block.first_run <= run) found = &block;
  const wire::Extent& extent = runs_[run].extent;
  error.where = (found == nullptr ? "" : "block " + std::to_string(found->reference.number) + ", ") + "segment " +
                std::to_string(extent.segment()) + " @ " + std::to_string(extent.offset());
  return fail(std::move(error));
}

Result<void> RemoteReads::fetch() {
  gathered_.resize(gathered_bytes_);
  for (const auto& [run, place] : gathered_runs_)
    runs_[run].out = std::span(gathered_).subspan(place, runs_[run].extent.length());
  if (auto fetched = step_.link().fetch(step_.pin(), runs_); !fetched) {
    std::size_t missing = 0;
    while (missing + 1 < runs_.size() && runs_[missing].is_here) ++missing;
    return name(std::move(fetched.error()), missing);
  }
  for (const Row& row : rows_) std::memcpy(row.out.data(), gathered_.data() + row.place, row.out.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::size_t end = i + 1 < blocks_.size() ? blocks_[i + 1].first_run : runs_.size();
    for (std::size_t run = blocks_[i].first_run; run < end && blocks_[i].checked; ++run)
      blocks_[i].taken = joined_checksum(blocks_[i].taken, runs_[run].checksum, runs_[run].extent.length());
    if (i + 1 < blocks_.size()) RETURN_IF_ERROR(compare(blocks_[i]));
  }
  if (!blocks_.empty()) {
    blocks_.erase(blocks_.begin(), blocks_.end() - 1);
    blocks_.front().first_run = 0;
  }
  runs_.clear();
  gathered_runs_.clear();
  rows_.clear();
  gathered_bytes_ = 0;
  last_piece_.reset();
  return {};
}

Result<void> RemoteReads::finish() {
  RETURN_IF_ERROR(fetch());
  if (blocks_.empty()) return {};
  const Block last = blocks_.back();
  blocks_.clear();
  return compare(last);
}

Result<void> RemoteReads::compare(const Block& block) const {
  return block.checksum ? step_.compare(block.reference, *block.checksum, block.taken) : Result<void>();
}

}  // namespace forebay::client
