// SPDX-License-Identifier: Apache-2.0
#include "space/metadata_reads.h"

#include <algorithm>

#include "base/checksum.h"

namespace forebay::server {
namespace {

constexpr std::uint64_t metadata_bytes_max = std::uint64_t{1} << 32;

}  // namespace

Result<std::vector<std::byte>> read_metadata(const journal::PartT& part, OpenedSegments& segments) {
  if (part.metadata_bytes > metadata_bytes_max) return fail(ErrorCode::corrupt, "metadata of an impossible size");
  std::vector<std::byte> bytes(part.metadata_bytes);
  std::size_t done = 0;
  for (const journal::Extent& extent : part.metadata) {
    if (extent.length() > bytes.size() - done)
      return fail(ErrorCode::corrupt, "the lengths of the metadata do not agree");
    RETURN_IF_ERROR(segments.read(extent, 0, std::span(bytes).subspan(done, extent.length())));
    done += extent.length();
  }
  if (done != bytes.size() || crc32c(bytes) != part.metadata_crc)
    return fail(ErrorCode::corrupt, "checksum mismatch in a step's metadata");
  return bytes;
}

Result<std::vector<std::byte>> read_attribute_set(const journal::AttributeSetT& set, OpenedSegments& segments) {
  if (set.bytes > metadata_bytes_max) return fail(ErrorCode::corrupt, "attributes of an impossible size");
  std::vector<std::byte> bytes(set.bytes);
  std::size_t done = 0;
  for (const journal::Extent& extent : set.extents) {
    const std::size_t length = std::min<std::uint64_t>(extent.length(), bytes.size() - done);
    RETURN_IF_ERROR(segments.read(extent, 0, std::span(bytes).subspan(done, length)));
    done += length;
  }
  if (done != bytes.size() || crc32c(bytes) != set.crc)
    return fail(ErrorCode::corrupt, "checksum mismatch in a step's attributes");
  return bytes;
}

}  // namespace forebay::server
