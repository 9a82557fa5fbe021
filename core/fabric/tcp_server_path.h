// SPDX-License-Identifier: Apache-2.0
// The server's end of a data path over TCP. Large pieces are sent from the page cache, without a copy: what arrives is
// what the segment holds when the bytes leave. A client that has all of them asks whether the step is still there, and
// shows nothing before (StepCheck). Small pieces, and what is written, go through one buffer.
#pragma once

#include <memory>

#include "fabric/running_path.h"
#include "fabric/server_frames.h"
#include "fabric/transfer_queue.h"
#include "fabric/write_window.h"

namespace forebay::fabric {

class TcpServerPath final : public RunningPath {
 public:
  /// `window` null: for sending. `silence_ms`: see path_silence_ms_max.
  TcpServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window, std::int64_t silence_ms = path_silence_ms_max);

  bool send(Transfer transfer) override;
  bool refuse(std::uint64_t ticket, const Error& error) override;
  void close() noexcept override;
  Result<void> run() override;

 private:
  Result<void> send_jobs();
  Result<void> take_writes();
  Result<void> send_transfer(const Transfer& transfer);
  /// At most a frame of the piece, from `done` on; false: it cannot be read, and the client has been told.
  Result<bool> send_chunk(std::uint64_t ticket, const Transfer::Piece& piece, std::uint64_t done, std::uint64_t bytes);

  ServerFrames frames_;
  const std::shared_ptr<WriteWindow> window_;
  const std::uint64_t number_;           // of this path in the window
  std::unique_ptr<std::byte[]> buffer_;  // of its thread
  TransferQueue jobs_;
};

}  // namespace forebay::fabric
