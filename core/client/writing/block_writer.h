// SPDX-License-Identifier: Apache-2.0
// Brings blocks from the caller's memory into the segment: one pass in chunks that stay in the cache while checksum and
// statistics are taken. Blocks below 64 KiB are gathered and written together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <forebay/protocol/step_metadata_generated.h>
#include <forebay/types.h>

#include "client/reading/boxes.h"
#include "client/segments/segment_cache.h"
#include "client/writing/growing_buffer.h"
#include "protocol/step_metadata_builder.h"

namespace forebay::client {

/// The memory that a block comes from: all of it, or a box of an array.
struct BlockSource {
  const std::byte* data = nullptr;
  Extents count;         ///< the block's extents
  Extents memory_start;  ///< with memory_count: where the block lies in an array of these extents; empty: contiguous
  Extents memory_count;
  DataType type = DataType::float64;
  std::uint64_t bytes = 0;  ///< of the block
};

/// What was found on the way.
struct BlockDigest {
  std::uint32_t checksum = 0;
  protocol::Statistics statistics{};
};

class BlockWriter {
 public:
  BlockWriter(const SegmentCache& segments, bool checksums, bool statistics);

  /// Writes a block into its pieces, or keeps it to be written with others.
  Result<BlockDigest> write(const BlockSource& source, std::span<const format::Piece> pieces);
  /// Digest of bytes that lie in the segment already.
  BlockDigest digest(std::span<const std::byte> block, DataType type) const;
  /// Writes bytes as they are: step metadata.
  Result<void> write_bytes(std::span<const std::byte> bytes, std::span<const format::Piece> pieces);
  /// The same at once, not gathered with what lies beside it: an attribute set.
  Result<void> write_apart(std::span<const std::byte> bytes, std::span<const format::Piece> pieces);

  /// Writes what is still kept, filling its last page with zeros: a page written whole need not be read before.
  Result<void> flush();
  /// Forgets what is kept.
  void discard() noexcept;

 private:
  /// Bytes for one run of a segment, not written yet.
  struct Pending {
    GrowingBuffer buffer;
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };

  /// Where the pieces lie on several other nodes: side by side. False, and nothing is written, where they do not.
  Result<bool> write_side_by_side(const BlockSource& source, std::span<const format::Piece> pieces,
                                  BlockDigest& digest);
  Result<void> write_large(const BlockSource& source, std::span<const format::Piece> pieces, BlockDigest& digest);
  /// Room for a piece in the buffer for small or for page-sized blocks.
  Result<std::byte*> reserve(Pending& pending, const format::Piece& piece);
  Result<void> write_out(Pending& pending);
  Result<void> write_at(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes);

  const SegmentCache& segments_;
  const bool checksums_;
  const bool statistics_;
  Pending small_;                        // blocks below a page share pages ...
  Pending paged_;                        // ... and lie elsewhere than those of a page and more
  std::unique_ptr<std::byte[]> window_;  // for gathering
  std::shared_ptr<Segment> last_segment_;
};

}  // namespace forebay::client
