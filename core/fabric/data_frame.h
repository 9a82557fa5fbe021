// SPDX-License-Identifier: Apache-2.0
// What travels on the socket of a data path: frames, each a header and the bytes that its kind says. A path over TCP
// has all bytes of steps in them, a fabric path only those of small requests. docs/formats/remote.md describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <forebay/result.h>

namespace forebay::fabric {

inline constexpr std::uint32_t frame_magic = 0x44594246;  // "FBYD" read as little-endian

enum class FrameKind : std::uint16_t {
  data = 1,     ///< server: bytes of the request `ticket`
  failed = 2,   ///< server: the request `ticket` ends with an error; the bytes are its text, `segment` is its code
  write = 3,    ///< client: bytes for `segment` at `offset`
  finish = 4,   ///< client: asks for `written` or `failed` with this ticket, once all before it is written
  written = 5,  ///< server
  // Of fabric paths only:
  greeting = 6,  ///< both: a FabricGreeting follows
  ready = 7,     ///< client: first of all, it reads frames now; server: the client's hello over the fabric has arrived
  memory = 8,    ///< client: `length` bytes of the request `ticket` go to this memory; a MemoryPlace follows
  landed = 9,    ///< server: `length` bytes are in the oldest memory of the request `ticket`
  take = 10,     ///< client: bytes for `segment` at `offset` lie in this memory, number `ticket`; a MemoryPlace follows
  taken = 11     ///< server: the memory with this number is the client's again
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

/// Requests of up to so many bytes have them in frames also on a fabric path.
inline constexpr std::uint64_t inline_bytes_max = std::uint64_t{64} << 10;
/// How much memory a client of a fabric path may offer at once.
inline constexpr std::size_t offers_max = 8;

/// protocol unless it is a header that a client may send over TCP, of at most frame_bytes_max bytes.
Result<void> check_client_frame(const FrameHeader& header);
/// protocol unless it is a header that a server may send over TCP.
Result<void> check_server_frame(const FrameHeader& header);
/// The same for the sockets of fabric paths.
Result<void> check_fabric_client_frame(const FrameHeader& header);
Result<void> check_fabric_server_frame(const FrameHeader& header);
/// The error of a `failed` frame. A code that there is not becomes protocol.
Error error_of(const FrameHeader& header, std::string text);

}  // namespace forebay::fabric
