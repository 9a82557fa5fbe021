// SPDX-License-Identifier: Apache-2.0
#include "client/writing/allocated_memory.h"

#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/return_error.h"
#include "protocol/step_metadata.h"

namespace forebay::client {
namespace {

// Idle mappings are kept up to this many times the bytes that a step allocates: as many steps as a short retention and
// its consumers keep, the open one, and some to spare. Space comes round in turn, so with fewer than go round none
// would be found again. They cost addresses; the pages are the segment's.
constexpr std::uint64_t idle_steps_max = 12;
// And so many of them: they are looked through for each block, and the kernel's number of mappings is limited.
constexpr std::size_t idle_mappings_max = 256;

std::vector<Extent> pages_of(std::span<const format::Piece> pieces) {
  std::vector<Extent> extents;
  for (const format::Piece& piece : pieces)
    extents.push_back(
        {piece.segment(), piece.member(), piece.offset(), round_up(piece.length(), protocol::page_bytes)});
  return extents;
}

}  // namespace

Result<std::shared_ptr<Mapping>> AllocatedMemory::map(std::span<const format::Piece> pieces, std::uint64_t bytes) {
  const std::vector<Extent> extents = pages_of(pieces);
  const auto same = std::ranges::find_if(released_, [&](const Released& idle) {
    return !idle.held && idle.extents == extents && idle.mapping->bytes().size() == bytes;
  });
  if (same != released_.end()) {
    const std::shared_ptr<Mapping> mapping = std::move(same->mapping);
    released_.erase(same);
    if (mapping->make_writable()) return mapping;
  }
  if (auto mapping = Mapping::map(segments_, pieces, true)) return mapping;
  // Addresses or mappings may be short (ulimit -v, vm.max_map_count): those that are only kept go first.
  std::erase_if(released_, [](const Released& idle) { return !idle.held; });
  return Mapping::map(segments_, pieces, true);
}

void AllocatedMemory::add(std::shared_ptr<Mapping> mapping, std::span<const format::Piece> pieces, std::uint32_t block,
                          DataType type) {
  allocated_.push_back({std::move(mapping), block, type, pages_of(pieces), {}});
}

void AllocatedMemory::add_private(std::shared_ptr<Mapping> memory, std::span<const format::Piece> pieces,
                                  std::uint32_t block, DataType type) {
  allocated_.push_back({std::move(memory), block, type, {}, {pieces.begin(), pieces.end()}});
}

Result<void> AllocatedMemory::write_private(BlockWriter& blocks) {
  for (const Allocated& entry : allocated_) {
    if (entry.pieces.empty()) continue;
    RETURN_IF_ERROR(blocks.write_bytes(entry.mapping->bytes(), entry.pieces));
  }
  return {};
}

Result<void> AllocatedMemory::complete(BlockWriter& blocks, protocol::StepMetadataBuilder& metadata) {
  for (const Allocated& entry : allocated_) {
    // First, so that checksum and statistics are those of what readers get.
    RETURN_IF_ERROR(entry.mapping->make_read_only());
    const BlockDigest digest = blocks.digest(entry.mapping->bytes(), entry.type);
    metadata.complete_block(entry.block, digest.checksum, digest.statistics);
  }
  return {};
}

bool AllocatedMemory::any_held() const {
  return std::ranges::any_of(allocated_, [](const Allocated& entry) { return entry.mapping->is_held(); });
}

void AllocatedMemory::release(const std::shared_ptr<const void>& pin) {
  allocated_bytes_ = 0;
  for (Allocated& entry : allocated_) {
    allocated_bytes_ += entry.mapping->bytes().size();
    if (pin) entry.mapping->keep_while_held(pin);
    const bool held = entry.mapping->is_held();
    released_.push_back({std::move(entry.mapping), std::move(entry.extents), held});
  }
  allocated_.clear();
}

void AllocatedMemory::keep_while_held(const std::shared_ptr<const void>& pin) noexcept {
  for (const Allocated& entry : allocated_) {
    if (entry.mapping != nullptr) entry.mapping->keep_while_held(pin);  // else release() has dealt with it
  }
}

void AllocatedMemory::cut(const Extent& extent, std::vector<Extent>& free, std::vector<Extent>& kept) const {
  // At the first block held that it meets, then the rest likewise.
  for (const Released& block : released_) {
    if (!block.held) continue;
    for (const Extent& held : block.extents) {
      if (held.segment != extent.segment || held.end() <= extent.offset || extent.end() <= held.offset) continue;
      const std::uint64_t from = std::max(held.offset, extent.offset);
      const std::uint64_t to = std::min(held.end(), extent.end());
      kept.push_back({extent.segment, extent.member, from, to - from});
      if (extent.offset < from) cut({extent.segment, extent.member, extent.offset, from - extent.offset}, free, kept);
      if (to < extent.end()) cut({extent.segment, extent.member, to, extent.end() - to}, free, kept);
      return;
    }
  }
  free.push_back(extent);
}

void AllocatedMemory::place(std::span<const Extent> extents, std::vector<Extent> kept) {
  std::vector<Extent> free;
  for (const Extent& extent : extents) cut(extent, free, kept);
  for (const Extent& extent : free) space_.grant(extent);
  kept_back_ = std::move(kept);
}

void AllocatedMemory::reuse_released() {
  bool any = false;
  for (Released& block : released_) {
    if (!block.held || block.mapping->is_held()) continue;
    block.held = false;
    any = true;
  }
  if (any) place(kept_back_, {});
}

void AllocatedMemory::unmap_unlikely() {
  std::uint64_t idle_bytes = 0;
  std::size_t idle = 0;
  for (auto block = released_.rbegin(); block != released_.rend(); ++block) {
    if (block->held) continue;
    idle_bytes += block->mapping->bytes().size();
    if (++idle > idle_mappings_max || idle_bytes > idle_steps_max * allocated_bytes_) block->mapping.reset();
  }
  std::erase_if(released_, [](const Released& block) { return block.mapping == nullptr; });
}

}  // namespace forebay::client
