// SPDX-License-Identifier: Apache-2.0
#include "storage/framing.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "base/bounds.h"
#include "base/checksum.h"

namespace forebay::storage {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as the machine holds them");

constexpr std::size_t crc_offset = offsetof(FrameHeader, crc);
constexpr std::size_t after_crc = crc_offset + sizeof(FrameHeader::crc);

/// `frame` is a whole record, header to padding.
std::uint32_t frame_crc(std::span<const std::byte> frame) noexcept {
  return crc32c(frame.subspan(after_crc), crc32c(frame.first(crc_offset)));
}

}  // namespace

void encode_frame(FrameHeader header, std::span<const std::byte> body, std::vector<std::byte>& out) {
  assert(body.size() <= frame_body_bytes_max);
  assert(header.type != 0);
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.version = frame_version;
  header.crc = 0;
  const std::size_t total = frame_bytes(body.size());
  out.resize(total);
  std::memcpy(out.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(out.data() + sizeof header, body.data(), body.size());
  const std::size_t padding_at = sizeof header + body.size();
  std::memset(out.data() + padding_at, 0, total - padding_at);
  const std::uint32_t crc = frame_crc(out);
  std::memcpy(out.data() + crc_offset, &crc, sizeof crc);
}

std::optional<Frame> FrameReader::frame_at(std::uint64_t offset) const noexcept {
  if (!range_within(offset, sizeof(FrameHeader), bytes_.size())) return std::nullopt;
  FrameHeader header;
  std::memcpy(&header, bytes_.data() + offset, sizeof header);
  if (header.type == 0 || header.version == 0 || header.file != file_ || header.body_bytes > frame_body_bytes_max)
    return std::nullopt;
  if (salt_ && header.salt != *salt_) return std::nullopt;
  if (header.synced_bytes > offset) return std::nullopt;
  const std::uint64_t total = frame_bytes(header.body_bytes);
  if (!range_within(offset, total, bytes_.size())) return std::nullopt;
  if (frame_crc(bytes_.subspan(offset, total)) != header.crc) return std::nullopt;
  return Frame{header, offset, bytes_.subspan(offset + sizeof header, header.body_bytes)};
}

std::optional<Frame> FrameReader::next() noexcept {
  const auto frame = frame_at(position_);
  if (!frame || frame->header.sequence != sequence_) {
    classify_rest();
    return std::nullopt;
  }
  salt_ = frame->header.salt;
  ++sequence_;
  position_ += frame_bytes(frame->body.size());
  synced_bytes_ = std::max(synced_bytes_, frame->header.synced_bytes);
  return frame;
}

void FrameReader::classify_rest() noexcept {
  const auto rest = bytes_.subspan(position_);
  const auto last = std::find_if(rest.rbegin(), rest.rend(), [](std::byte byte) { return byte != std::byte{0}; });
  used_bytes_ = position_ + static_cast<std::uint64_t>(rest.rend() - last);
  if (used_bytes_ == position_) {
    end_ = FrameEnd::end;
    return;
  }
  end_ = FrameEnd::broken;
  // Records are aligned, and those behind the gap carry later sequence numbers than the one that is missing. A whole
  // record of a lower number is not possible; one of the same number would be the missing one at a wrong place.
  std::uint64_t offset = position_ + frame_alignment;
  while (offset < used_bytes_) {
    const auto frame = frame_at(offset);
    if (!frame || frame->header.sequence <= sequence_) {
      offset += frame_alignment;
      continue;
    }
    end_ = FrameEnd::gap;
    ++records_behind_;
    synced_bytes_ = std::max(synced_bytes_, frame->header.synced_bytes);
    offset += frame_bytes(frame->body.size());
  }
}

}  // namespace forebay::storage
