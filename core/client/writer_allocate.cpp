// SPDX-License-Identifier: Apache-2.0
// Memory that a program computes in: extents of the open step, mapped. When the step has ended the mapping is
// read-only, and while the program holds it this writer does not use the space again, even if the step is dropped and
// the server grants it anew; that is the pin of an allocation.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "client/writer_impl.h"
#include "protocol/step_metadata.h"

namespace forebay {

using client::Extent;
using protocol::page_bytes;

Result<Writer::Allocation> Writer::Impl::allocate(const BlockSpec& block, std::uint64_t bytes) {
  protocol::StepMetadataBuilder::Block added{block.start, block.count, {}, 0, {}};
  if (bytes == 0) {
    metadata.add_block(variable_of(block), added);
    return Allocation{};
  }
  if (auto taken = take_space(bytes, true); !taken) return fail(std::move(taken.error()));
  auto mapping = client::Mapping::map(segments, pieces, true);
  if (!mapping) return failed(std::move(mapping.error()));
  added.pieces = pieces;
  Allocated& entry = allocated.emplace_back();
  entry.mapping = *mapping;
  entry.block = metadata.add_block(variable_of(block), added);
  entry.type = block.type;
  for (const format::Piece& piece : pieces)
    entry.extents.push_back({piece.segment(), piece.offset(), round_up(piece.length(), page_bytes)});
  return Allocation{(*mapping)->bytes(), *mapping};
}

Result<void> Writer::Impl::complete_allocated() {
  for (const Allocated& entry : allocated) {
    // First, so that checksum and statistics are those of what readers get.
    if (auto protected_now = entry.mapping->make_read_only(); !protected_now) return protected_now;
    const client::BlockDigest digest = blocks.digest(entry.mapping->bytes(), entry.type);
    metadata.complete_block(entry.block, digest.checksum, digest.statistics);
  }
  return {};
}

void Writer::Impl::release_allocated() {
  for (Allocated& entry : allocated) {
    std::weak_ptr<client::Mapping> mapping = entry.mapping;
    entry.mapping.reset();
    if (!mapping.expired()) viewed.push_back({std::move(mapping), std::move(entry.extents)});
  }
  allocated.clear();
}

void Writer::Impl::add_space(const Extent& extent) {
  // Cut at the first view that it meets, then the rest likewise.
  for (const Viewed& view : viewed) {
    for (const Extent& held : view.extents) {
      if (held.segment != extent.segment || held.end() <= extent.offset || extent.end() <= held.offset) continue;
      const std::uint64_t from = std::max(held.offset, extent.offset);
      const std::uint64_t to = std::min(held.end(), extent.end());
      kept_back.push_back({extent.segment, from, to - from});
      if (extent.offset < from) add_space({extent.segment, extent.offset, from - extent.offset});
      if (to < extent.end()) add_space({extent.segment, to, extent.end() - to});
      return;
    }
  }
  space.grant(extent);
}

void Writer::Impl::reuse_released_space() {
  if (viewed.empty()) return;
  std::erase_if(viewed, [](const Viewed& view) { return view.mapping.expired(); });
  const std::vector<Extent> waiting = std::exchange(kept_back, {});
  for (const Extent& extent : waiting) add_space(extent);
}

}  // namespace forebay
