// SPDX-License-Identifier: Apache-2.0
// Framed records, as journals and identity files consist of them: how one is written, and how a file's bytes are told
// apart into whole records, an end, a torn tail and damage. Byte layout: docs/formats/framing.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace forebay::storage {

/// In front of every body; little-endian, as all machines are that Forebay builds on.
struct FrameHeader {
  std::uint32_t body_bytes = 0;
  std::uint16_t type = 0;          ///< never 0
  std::uint16_t version = 0;       ///< of the frame and its body's meaning; frame_version
  std::uint32_t crc = 0;           ///< CRC-32C of the header without this field, the body and its padding
  std::uint32_t sequence = 0;      ///< of the record in its file, from 0
  std::uint32_t file = 0;          ///< number of the file
  std::uint32_t salt = 0;          ///< drawn when the file is made: bytes of any other file never fit
  std::uint64_t synced_bytes = 0;  ///< how much of the file was known to be on stable storage when this was written
};
static_assert(sizeof(FrameHeader) == 32 && alignof(FrameHeader) == 8);
static_assert(offsetof(FrameHeader, crc) == 8 && offsetof(FrameHeader, sequence) == 12 &&
              offsetof(FrameHeader, synced_bytes) == 24);

/// Version 1 with the mark 0xfb: files from before the formats began again are of versions without it, and refused.
inline constexpr std::uint16_t frame_version = 0xfb01;
inline constexpr std::size_t frame_alignment = 8;
/// Larger bodies are damage.
inline constexpr std::uint64_t frame_body_bytes_max = std::uint64_t{1} << 30;

/// Bytes that a record with such a body takes.
constexpr std::uint64_t frame_bytes(std::uint64_t body_bytes) noexcept {
  return (sizeof(FrameHeader) + body_bytes + frame_alignment - 1) & ~std::uint64_t{frame_alignment - 1};
}

/// Makes the record in `out`, replacing what it holds. `header` gives type, sequence, file, salt and synced_bytes; the
/// rest is filled in. The body has at most frame_body_bytes_max bytes.
void encode_frame(FrameHeader header, std::span<const std::byte> body, std::vector<std::byte>& out);

struct Frame {
  FrameHeader header;
  std::uint64_t offset = 0;         ///< in the file
  std::span<const std::byte> body;  ///< aligned to 8 bytes if the file's bytes are
};

/// Why a FrameReader gives no more records.
enum class FrameEnd : std::uint8_t {
  end = 1,     ///< nothing but zeros, or nothing at all, follows
  broken = 2,  ///< something follows that is no whole record, and no whole record follows it
  gap = 3,     ///< as broken, but whole records of this file follow
};

/// Reads the records of one file in order. The bytes outlive the reader and the frames.
class FrameReader {
 public:
  FrameReader(std::span<const std::byte> bytes, std::uint32_t file) noexcept : bytes_(bytes), file_(file) {}

  /// The next whole record, or nothing; end() tells why.
  std::optional<Frame> next() noexcept;

  // Valid once next() has returned nothing.
  FrameEnd end() const noexcept { return end_; }
  /// How far whole records reach.
  std::uint64_t position() const noexcept { return position_; }
  /// The position behind the last byte that is not zero.
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  /// After a gap: whole records behind it.
  std::uint64_t records_behind() const noexcept { return records_behind_; }
  /// The most that any whole record, those behind a gap included, says was synced.
  std::uint64_t synced_bytes() const noexcept { return synced_bytes_; }

 private:
  std::optional<Frame> frame_at(std::uint64_t offset) const noexcept;
  void classify_rest() noexcept;

  std::span<const std::byte> bytes_;
  std::uint32_t file_;
  std::uint32_t sequence_ = 0;
  std::optional<std::uint32_t> salt_;  ///< of the first record
  std::uint64_t position_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t records_behind_ = 0;
  std::uint64_t synced_bytes_ = 0;
  FrameEnd end_ = FrameEnd::end;
};

}  // namespace forebay::storage
