// SPDX-License-Identifier: Apache-2.0
// The client's end of a data path over TCP.
#pragma once

#include "fabric/data_frame.h"
#include "fabric/data_path.h"

namespace forebay::fabric {

class TcpClientPath final : public ClientPath {
 public:
  /// A connected, non-blocking socket on which both sides have said what it is for.
  explicit TcpClientPath(Descriptor socket) noexcept : socket_(std::move(socket)) {}

  Result<void> receive(std::uint64_t ticket, std::span<std::byte> out, const KeepWaiting& keep_waiting) override;
  Result<void> write(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                     const KeepWaiting& keep_waiting) override;
  Result<void> finish_writes(const KeepWaiting& keep_waiting) override;
  bool is_broken() const noexcept override { return broken_; }

 private:
  /// Until the socket is ready for `events`: as long as keep_waiting() allows, at most a minute.
  Result<void> wait_for(short events, std::int64_t since_ns, const KeepWaiting& keep_waiting);
  Result<void> receive_exactly(std::span<std::byte> out, const KeepWaiting& keep_waiting);
  Result<FrameHeader> receive_header(std::uint64_t ticket, const KeepWaiting& keep_waiting);
  Result<void> send_all(const FrameHeader& header, std::span<const std::byte> bytes, const KeepWaiting& keep_waiting);
  /// The error of the server's `failed` frame.
  Result<void> failure(const FrameHeader& header, const KeepWaiting& keep_waiting);

  Descriptor socket_;
  std::uint64_t finishes_ = 0;
  bool broken_ = false;
};

}  // namespace forebay::fabric
