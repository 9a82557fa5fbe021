// SPDX-License-Identifier: Apache-2.0
// The server's end of a data path over TCP. Bytes are copied through one buffer: what was read from a segment is what
// arrives, whatever becomes of the segment meanwhile.
#pragma once

#include <memory>

#include "fabric/running_path.h"
#include "fabric/server_frames.h"
#include "fabric/transfer_queue.h"
#include "fabric/write_window.h"

namespace forebay::fabric {

class TcpServerPath final : public RunningPath {
 public:
  /// `window` null: for sending.
  TcpServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window);

  bool send(Transfer transfer) override;
  bool refuse(std::uint64_t ticket, const Error& error) override;
  void close() noexcept override;
  Result<void> run() override;

 private:
  Result<void> send_jobs();
  Result<void> take_writes();
  Result<void> send_transfer(const Transfer& transfer);

  ServerFrames frames_;
  const std::shared_ptr<WriteWindow> window_;
  std::unique_ptr<std::byte[]> buffer_;  // of its thread
  TransferQueue jobs_;
};

}  // namespace forebay::fabric
