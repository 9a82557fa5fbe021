// SPDX-License-Identifier: Apache-2.0
// Memory that a program computes in: extents of the open step, mapped. When the step has ended the mapping is
// read-only, and while the program holds it the step is pinned: by a reader of this writer's own, for whom the server
// takes the pin as it commits the step. What became of no step is this writer's space, and kept back here. A mapping
// that the program let go of is kept for a while, because recycled space comes round again: mapping it anew, its page
// faults and unmapping it cost more than a checksum.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/return_error.h"
#include "client/writing/writer_impl.h"
#include "protocol/step_metadata.h"

namespace forebay {

using client::Extent;
using protocol::page_bytes;

namespace {

// Idle mappings are kept up to this many times the bytes that a step allocates: the steps that a short retention keeps,
// the open one, and one to spare.
constexpr std::uint64_t idle_steps_max = 4;
// And so many of them: they are looked through for each block, and the kernel's number of mappings is limited.
constexpr std::size_t idle_mappings_max = 256;
// A reader with a name: what it pins is not limited as unnamed readers' pins are. It follows nothing, so that there is
// no cursor of this name.
constexpr const char* holder_name = "allocated-memory";

}  // namespace

Result<Writer::Allocation> Writer::Impl::allocate(const BlockSpec& block, std::uint64_t bytes) {
  protocol::StepMetadataBuilder::Block added{block.start, block.count, {}, 0, {}};
  if (bytes == 0) {
    metadata.add_block(variable_of(block), added);
    return Allocation{};
  }
  RETURN_IF_ERROR(take_space(bytes, true));
  std::vector<Extent> extents;
  for (const format::Piece& piece : pieces)
    extents.push_back({piece.segment(), piece.offset(), round_up(piece.length(), page_bytes)});
  auto mapping = map_pieces(extents, bytes);
  if (!mapping) return failed(std::move(mapping.error()));
  added.pieces = pieces;
  allocated.push_back({*mapping, metadata.add_block(variable_of(block), added), block.type, std::move(extents)});
  return Allocation{(*mapping)->bytes(), client::Mapping::hold(*mapping)};
}

Result<std::shared_ptr<client::Mapping>> Writer::Impl::map_pieces(const std::vector<Extent>& extents,
                                                                  std::uint64_t bytes) {
  const auto same = std::ranges::find_if(released, [&](const Released& idle) {
    return !idle.held && idle.extents == extents && idle.mapping->bytes().size() == bytes;
  });
  if (same != released.end()) {
    const std::shared_ptr<client::Mapping> mapping = std::move(same->mapping);
    released.erase(same);
    if (mapping->make_writable()) return mapping;
  }
  if (auto mapping = client::Mapping::map(segments, pieces, true)) return mapping;
  // Addresses or mappings may be short (ulimit -v, vm.max_map_count): those that are only kept go first.
  std::erase_if(released, [](const Released& idle) { return !idle.held; });
  return client::Mapping::map(segments, pieces, true);
}

Result<void> Writer::Impl::complete_allocated() {
  for (const Allocated& entry : allocated) {
    // First, so that checksum and statistics are those of what readers get.
    RETURN_IF_ERROR(entry.mapping->make_read_only());
    const client::BlockDigest digest = blocks.digest(entry.mapping->bytes(), entry.type);
    metadata.complete_block(entry.block, digest.checksum, digest.statistics);
  }
  return {};
}

Result<void> Writer::Impl::pin_if_held() {
  part.holder = 0;
  if (std::ranges::none_of(allocated, [](const Allocated& entry) { return entry.mapping->is_held(); })) return {};
  if (!holder) {
    ReaderOptions reading;
    reading.consumer = holder_name;
    reading.follow = false;
    reading.open_timeout_ms = 0;
    reading.reconnect_timeout_ms = options.reconnect_timeout_ms;
    reading.interrupt = options.interrupt;
    ASSIGN_OR_RETURN(holder, client::ReaderLink::open(address, reading, connection->place()));
  } else if (holder->current().connection->is_broken()) {
    RETURN_IF_ERROR(holder->confirm());
  }
  pin_part();
  return {};
}

void Writer::Impl::pin_part() {
  part.holder = holder->session();
  // From now on, so that it is among what is said to be held when the server comes back.
  part_pin = holder->delivered(step, epoch, true, holder->current().generation);
}

void Writer::Impl::release_allocated(const std::shared_ptr<client::Pin>& pin) {
  allocated_bytes = 0;
  for (Allocated& entry : allocated) {
    allocated_bytes += entry.mapping->bytes().size();
    if (pin) entry.mapping->keep_while_held(pin);
    const bool held = entry.mapping->is_held();
    released.push_back({std::move(entry.mapping), std::move(entry.extents), held});
  }
  allocated.clear();
}

void Writer::Impl::cut(const Extent& extent, std::vector<Extent>& free, std::vector<Extent>& kept) const {
  // At the first block held that it meets, then the rest likewise.
  for (const Released& block : released) {
    if (!block.held) continue;
    for (const Extent& held : block.extents) {
      if (held.segment != extent.segment || held.end() <= extent.offset || extent.end() <= held.offset) continue;
      const std::uint64_t from = std::max(held.offset, extent.offset);
      const std::uint64_t to = std::min(held.end(), extent.end());
      kept.push_back({extent.segment, from, to - from});
      if (extent.offset < from) cut({extent.segment, extent.offset, from - extent.offset}, free, kept);
      if (to < extent.end()) cut({extent.segment, to, extent.end() - to}, free, kept);
      return;
    }
  }
  free.push_back(extent);
}

void Writer::Impl::place(std::span<const Extent> extents, std::vector<Extent> kept) {
  std::vector<Extent> free;
  for (const Extent& extent : extents) cut(extent, free, kept);
  for (const Extent& extent : free) space.grant(extent);
  kept_back = std::move(kept);
}

void Writer::Impl::look_for_released() {
  for (Released& block : released) {
    if (!block.held || block.mapping->is_held()) continue;
    block.held = false;
    let_go = true;
  }
  if (!let_go) return;
  place(kept_back, {});
  let_go = false;
}

void Writer::Impl::unmap_unlikely() {
  std::uint64_t idle_bytes = 0;
  std::size_t idle = 0;
  for (auto block = released.rbegin(); block != released.rend(); ++block) {
    if (block->held) continue;
    idle_bytes += block->mapping->bytes().size();
    if (++idle > idle_mappings_max || idle_bytes > idle_steps_max * allocated_bytes) block->mapping.reset();
  }
  std::erase_if(released, [](const Released& block) { return block.mapping == nullptr; });
}

}  // namespace forebay
