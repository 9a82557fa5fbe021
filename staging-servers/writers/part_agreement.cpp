// SPDX-License-Identifier: Apache-2.0
#include "writers/part_agreement.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/return_error.h"
#include "protocol/step_agreement.h"
#include "space/metadata_reads.h"

namespace forebay::server {
namespace {

// The event loop reads no more than this for one step. Ranks that describe so many variables are not compared.
constexpr std::uint64_t metadata_bytes_max = std::uint64_t{32} << 20;

Result<void> compare(const Segments& segments, const std::vector<WriterRank>& ranks) {
  std::uint64_t bytes = 0;
  for (const WriterRank& rank : ranks) bytes += rank.part->part.metadata_bytes;
  if (bytes > metadata_bytes_max) return {};
  const SegmentOpener open = [&](std::uint32_t segment) { return segments.open_file(segment, OpenMode::read); };
  OpenedSegments opened(segments.layout(), segments.record().segment_bytes, open);
  std::vector<std::vector<std::byte>> texts;
  std::vector<protocol::RankMetadata> parts;
  for (const WriterRank& rank : ranks) {
    const journal::PartT& part = rank.part->part;
    ASSIGN_OR_RETURN(auto read, read_metadata(part, opened));
    texts.push_back(std::move(read));
    ASSIGN_OR_RETURN(const auto* metadata, protocol::decode_step_metadata(texts.back()));
    parts.push_back({part.rank, metadata});
  }
  return protocol::check_agreement(parts);
}

}  // namespace

Result<void> PartAgreement::check(const Segments& segments, const std::vector<WriterRank>& ranks) {
  if (ranks.size() < 2) return {};
  std::vector<std::uint64_t> digests;
  for (const WriterRank& rank : ranks) digests.push_back(rank.part->definitions);
  const bool said = std::ranges::find(digests, 0U) == digests.end();
  const bool same = std::ranges::all_of(digests, [&](std::uint64_t digest) { return digest == digests.front(); });
  if (said && (same || digests == agreed_)) return {};
  auto compared = compare(segments, ranks);
  if (compared) agreed_ = std::move(digests);
  // What cannot be read now is not compared: a step must not fail because the server lacks a descriptor.
  if (!compared && compared.error().code != ErrorCode::invalid_argument) return {};
  return compared;
}

}  // namespace forebay::server
