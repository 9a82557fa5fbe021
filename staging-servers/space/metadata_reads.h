// SPDX-License-Identifier: Apache-2.0
// Reads what lies in segments, within their bounds: the metadata of a step's parts, and pieces of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "base/bounds.h"
#include "base/device.h"
#include "base/return_error.h"
#include "base/segment_layout.h"

namespace forebay::server {

/// Opens a segment for reading. Called once for each segment.
using SegmentOpener = std::function<Result<std::unique_ptr<File>>(std::uint32_t segment)>;

class OpenedSegments {
 public:
  /// `layout` and `open` outlive it.
  OpenedSegments(const SegmentLayout& layout, std::uint64_t segment_bytes, const SegmentOpener& open)
      : layout_(layout), segment_bytes_(segment_bytes), open_(open) {}

  /// `extent` of the journal or of a step's metadata; `done` of its bytes were read before.
  template <class AnyExtent>
  Result<void> read(const AnyExtent& extent, std::uint64_t done, std::span<std::byte> bytes) {
    const std::uint32_t segment = extent.segment();
    const std::uint64_t offset = extent.offset() + done;
    const std::string where = fmt::format("segment {} @ {}", segment, offset);
    if (layout_.member_of(segment) != extent.member()) {
      return fail(
          ErrorCode::corrupt,
          fmt::format("an extent names member {} of the reservation, which does not have its segment", extent.member()),
          where);
    }
    if (!range_within(offset, bytes.size(), segment_bytes_))
      return fail(ErrorCode::corrupt, "a piece lies outside its segment", where);
    auto found = files_.find(segment);
    if (found == files_.end()) {
      ASSIGN_OR_RETURN(auto file, open_(segment));
      found = files_.emplace(segment, std::move(file)).first;
    }
    return found->second->read_at(offset, bytes);
  }

 private:
  const SegmentLayout& layout_;
  std::uint64_t segment_bytes_;
  const SegmentOpener& open_;
  std::map<std::uint32_t, std::unique_ptr<File>> files_;
};

/// The encoded StepMetadata of a part. Errors: corrupt if it is not what its checksum says.
Result<std::vector<std::byte>> read_metadata(const journal::PartT& part, OpenedSegments& segments);

/// An encoded AttributeTable. Errors: corrupt if it is not what its checksum says.
Result<std::vector<std::byte>> read_attribute_set(const journal::AttributeSetT& set, OpenedSegments& segments);

}  // namespace forebay::server
