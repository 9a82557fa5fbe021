// SPDX-License-Identifier: Apache-2.0
// The client's end of a data path's socket: frames out and in, with waits that may be interrupted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "fabric/data_frame.h"
#include "fabric/incoming.h"
#include "fabric/tcp_socket.h"

namespace forebay::fabric {

/// One that moves piece by piece.
struct MovingFrame {
  FrameHeader header;
  std::size_t header_bytes = 0;  ///< that have moved
  std::uint64_t bytes_left = 0;  ///< of those that belong to it

  std::span<std::byte> rest_of_header() noexcept {
    return std::as_writable_bytes(std::span(&header, 1)).subspan(header_bytes);
  }
};

class FrameSocket {
 public:
  /// A connected socket on which both sides have said what it is for. `silence_ms`: see path_silence_ms_max.
  FrameSocket(Descriptor socket, std::int64_t silence_ms) noexcept;

  Result<void> send(const FrameHeader& header, std::span<const std::byte> bytes, const KeepWaiting& keep_waiting);
  Result<FrameHeader> receive_header(const KeepWaiting& keep_waiting);
  Result<void> receive(std::span<std::byte> out, const KeepWaiting& keep_waiting);
  /// The error that a `failed` frame brings.
  Result<Error> receive_failure(const FrameHeader& header, const KeepWaiting& keep_waiting);
  /// What a header in the answer to a request says: an error that it brings; else its bytes are the next of them.
  Result<std::optional<Error>> check_data(const FrameHeader& header, std::uint64_t ticket, const Incoming& incoming,
                                          const KeepWaiting& keep_waiting);
  /// What a request brings in `data` frames. The inner Result is the server's answer, the outer one the socket's.
  Result<Result<void>> receive_data(std::uint64_t ticket, Incoming& incoming, const KeepWaiting& keep_waiting);
  /// As many bytes as go without waiting.
  Result<std::size_t> send_some(std::span<const std::byte> first, std::span<const std::byte> bytes);
  Result<std::size_t> receive_some(std::span<std::byte> out);
  /// The rest of its header, as much as has come; false: not all of it.
  Result<bool> receive_some_header(MovingFrame& frame);
  int descriptor() const noexcept { return socket_.get(); }

 private:
  /// The next `count` of them.
  Result<void> receive(Incoming& incoming, std::size_t count, const KeepWaiting& keep_waiting);
  /// After a call that moved too little and, if `number` is not 0, failed: whether keep_waiting() allows another.
  /// timeout after silence_ms_ without anything.
  Result<void> may_go_on(int number, std::int64_t since_ns, const KeepWaiting& keep_waiting);

  Descriptor socket_;
  std::int64_t silence_ms_;
};

/// Marks a path as broken unless its call came to the end of a conversation.
class WholeOrBroken {
 public:
  explicit WholeOrBroken(bool& broken) noexcept : broken_(broken) { broken_ = true; }
  void whole() noexcept { broken_ = false; }
  WholeOrBroken(const WholeOrBroken&) = delete;
  WholeOrBroken& operator=(const WholeOrBroken&) = delete;

 private:
  bool& broken_;
};

}  // namespace forebay::fabric
