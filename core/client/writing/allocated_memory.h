// SPDX-License-Identifier: Apache-2.0
// Memory that a program computes in: extents of the open step, mapped. When the step has ended the mapping is
// read-only, and its space is not used again until the program releases it. A released mapping is kept for a while,
// because recycled space is soon used again: unmapping it, mapping it anew and its page faults would cost more than a
// checksum.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <forebay/result.h>
#include <forebay/types.h>

#include "client/segments/mapping.h"
#include "client/segments/segment_cache.h"
#include "client/writing/block_writer.h"
#include "client/writing/space.h"
#include "protocol/step_metadata_builder.h"

namespace forebay::client {

class AllocatedMemory {
 public:
  /// Both outlive it. `space`: gets what is granted and what the program has let go of.
  AllocatedMemory(const SegmentCache& segments, Space& space) noexcept : segments_(segments), space_(space) {}

  /// Maps these pieces writable; the mapping that an earlier step left in the same place where there is one.
  Result<std::shared_ptr<Mapping>> map(std::span<const format::Piece> pieces, std::uint64_t bytes);
  /// The program writes a block of the open step through it. `block`: its number in the step's metadata.
  void add(std::shared_ptr<Mapping> mapping, std::span<const format::Piece> pieces, std::uint32_t block, DataType type);
  /// The same of private memory, which write_private() brings to these pieces.
  void add_private(std::shared_ptr<Mapping> memory, std::span<const format::Piece> pieces, std::uint32_t block,
                   DataType type);
  /// The step ends: nothing is written to it any more, and its metadata gets checksums and statistics.
  Result<void> complete(BlockWriter& blocks, protocol::StepMetadataBuilder& metadata);
  /// After complete().
  Result<void> write_private(BlockWriter& blocks);
  /// Does the program hold memory of the open step?
  bool any_held() const;
  /// The step is over: the program may look at what it allocated, and its space is not used before it lets go of it.
  /// `pin`: on the step, if it has committed; kept as long as the program looks.
  void release(const std::shared_ptr<const void>& pin);
  /// The same for the pin alone, where it is not known how far release() came.
  void keep_while_held(const std::shared_ptr<const void>& pin) noexcept;

  /// Adds granted space, keeping back what the program still looks at.
  void grant(std::span<const Extent> extents) { place(extents, kept_back_); }
  /// Space that is this writer's, but is looked at still.
  const std::vector<Extent>& kept_back() const noexcept { return kept_back_; }
  /// The space of what the program has let go of may be used.
  void reuse_released();
  /// Mappings that nobody holds and that are not likely to be used again go.
  void unmap_unlikely();
  /// The writer is closed. What the program holds stays with it.
  void forget_released() { released_.clear(); }

 private:
  /// A block that the program writes through a mapping.
  struct Allocated {
    std::shared_ptr<Mapping> mapping;
    std::uint32_t block = 0;
    DataType type = DataType::float64;
    std::vector<Extent> extents;        ///< none of private memory
    std::vector<format::Piece> pieces;  ///< of private memory
  };
  /// Such a block of an earlier step.
  struct Released {
    std::shared_ptr<Mapping> mapping;
    std::vector<Extent> extents;
    bool held = false;  ///< by the program; else the mapping is kept for the next block in the same place
  };

  /// `kept` is what is kept back already.
  void place(std::span<const Extent> extents, std::vector<Extent> kept);
  /// Cuts an extent into what is free and what the program looks at.
  void cut(const Extent& extent, std::vector<Extent>& free, std::vector<Extent>& kept) const;

  const SegmentCache& segments_;
  Space& space_;
  std::vector<Allocated> allocated_;   // in the open step
  std::vector<Released> released_;     // the latest last
  std::uint64_t allocated_bytes_ = 0;  // in the last step
  std::vector<Extent> kept_back_;      // granted, but still looked at through `released_`
};

}  // namespace forebay::client
