// SPDX-License-Identifier: Apache-2.0
// What travels on a data path over TCP: frames, each a header and `length` bytes. docs/formats/remote.md describes
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <forebay/result.h>

namespace forebay::fabric {

inline constexpr std::uint32_t frame_magic = 0x44594246;  // "FBYD" read as little-endian

enum class FrameKind : std::uint16_t {
  data = 1,    ///< server: bytes of the request `ticket`
  failed = 2,  ///< server: the request `ticket` ends with an error; the bytes are its text, `segment` is its code
  write = 3,   ///< client: bytes for `segment` at `offset`
  finish = 4,  ///< client: asks for `written` or `failed` with this ticket, once all before it is written
  written = 5  ///< server
};

struct FrameHeader {
  std::uint32_t magic = frame_magic;
  FrameKind kind = FrameKind::data;
  std::uint16_t reserved = 0;
  std::uint64_t ticket = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t segment = 0;
  std::uint32_t reserved2 = 0;
};
static_assert(sizeof(FrameHeader) == 40);

inline constexpr std::uint64_t frame_bytes_max = std::uint64_t{1} << 20;
inline constexpr std::uint64_t frame_text_bytes_max = 4096;

/// protocol unless it is a header that a client may send, of at most frame_bytes_max bytes.
Result<void> check_client_frame(const FrameHeader& header);
/// protocol unless it is a header that a server may send.
Result<void> check_server_frame(const FrameHeader& header);
/// The error of a `failed` frame. A code that there is not becomes protocol.
Error error_of(const FrameHeader& header, std::string text);

}  // namespace forebay::fabric
