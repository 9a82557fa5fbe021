// SPDX-License-Identifier: Apache-2.0
// The server's end of a data path over TCP. Bytes are copied through one buffer: what was read from a segment is what
// arrives, whatever becomes of the segment meanwhile.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "fabric/data_frame.h"
#include "fabric/data_path.h"
#include "fabric/write_window.h"

namespace forebay::fabric {

class TcpServerPath final : public ServerPath {
 public:
  /// `window` null: for sending.
  TcpServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window);

  bool send(Transfer transfer) override;
  bool refuse(std::uint64_t ticket, const Error& error) override;
  void close() noexcept override;

  /// The life of its thread. disconnected when the client or close() has ended it.
  Result<void> run();

 private:
  struct Job {
    Transfer transfer;
    std::optional<Error> refusal;
  };
  bool add(Job job);
  Result<void> send_jobs();
  Result<void> take_writes();
  Result<void> send_transfer(const Transfer& transfer);
  Result<void> send_failure(std::uint64_t ticket, const Error& error);
  Result<void> send_frame(const FrameHeader& header, std::span<const std::byte> bytes);
  Result<void> receive_exactly(std::span<std::byte> out);

  const Descriptor socket_;
  const std::shared_ptr<WriteWindow> window_;
  std::unique_ptr<std::byte[]> buffer_;  // of its thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace forebay::fabric
