// SPDX-License-Identifier: Apache-2.0
// The client's end of a data path over TCP.
#pragma once

#include <optional>

#include "fabric/data_path.h"
#include "fabric/frame_socket.h"

namespace forebay::fabric {

class TcpClientPath final : public ClientPath {
 public:
  /// A connected socket on which both sides have said what it is for.
  /// `silence_ms`: see path_silence_ms_max.
  explicit TcpClientPath(Descriptor socket, std::int64_t silence_ms = path_silence_ms_max) noexcept
      : frames_(std::move(socket), silence_ms) {}

  Result<void> receive(std::uint64_t ticket, Incoming incoming, const KeepWaiting& keep_waiting) override;
  Result<void> write(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                     const KeepWaiting& keep_waiting) override;
  Result<void> finish_writes(const KeepWaiting& keep_waiting) override;
  Result<std::size_t> write_some(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                                 const KeepWaiting& keep_waiting) override;
  Result<bool> receive_some(std::uint64_t ticket, Incoming& incoming, const KeepWaiting& keep_waiting) override;
  int descriptor() const noexcept override { return frames_.descriptor(); }
  bool write_waits_to_send() const noexcept override { return true; }
  bool is_broken() const noexcept override { return broken_; }

 private:
  FrameSocket frames_;
  std::optional<MovingFrame> frame_;  // in the middle of it
  std::uint64_t finishes_ = 0;
  bool broken_ = false;
};

}  // namespace forebay::fabric
