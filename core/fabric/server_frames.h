// SPDX-License-Identifier: Apache-2.0
// The server's end of a data path's socket, of the path's own thread. A client that takes nothing for long loses it.
#pragma once

#include <cstdint>
#include <span>

#include "fabric/data_frame.h"
#include "fabric/tcp_socket.h"

namespace forebay::fabric {

class ServerFrames {
 public:
  /// `silence_ms`: how long the client may take nothing.
  ServerFrames(Descriptor socket, std::int64_t silence_ms);

  Result<void> send(const FrameHeader& header, std::span<const std::byte> bytes);
  Result<void> send(FrameKind kind, std::uint64_t ticket, std::uint64_t length = 0);
  /// The header, then header.length bytes of a file from `offset` on, which the kernel takes from its cache when they
  /// leave, maybe long after this has returned. io_error: they cannot be sent so; the frame stays unfinished.
  Result<void> send_file(const FrameHeader& header, int file, std::uint64_t offset);
  Result<void> send_failure(std::uint64_t ticket, const Error& error);
  Result<void> receive(std::span<std::byte> out);
  /// From any thread: every call fails from now on.
  void shut_down() noexcept;
  int descriptor() const noexcept { return socket_.get(); }

 private:
  Result<void> send_part(std::span<const std::byte> bytes, int flags);

  const Descriptor socket_;
};

/// Why a path ended that is no failure of the server's.
tl::unexpected<Error> path_ended(std::string why);

}  // namespace forebay::fabric
