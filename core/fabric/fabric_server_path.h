// SPDX-License-Identifier: Apache-2.0
// The server's end of a fabric path: its thread drives all transfers. It reads from segments into a few buffers and
// from these writes into memory that the client offered, or the other way round, several at a time. All of it belongs
// to one client: endpoint, buffers, deadlines.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "fabric/mapped_memory.h"
#include "fabric/rma_endpoint.h"
#include "fabric/running_path.h"
#include "fabric/server_frames.h"
#include "fabric/transfer_queue.h"
#include "fabric/write_window.h"

namespace forebay::fabric {

/// A fabric as one end has it: which provider, and what makes its endpoints.
struct FabricChoice {
  std::string provider;
  EndpointMaker make_endpoint;
};

class FabricServerPath final : public RunningPath {
 public:
  /// `window` null: for sending. `silence_ms`: see path_silence_ms_max.
  static Result<std::shared_ptr<FabricServerPath>> make(Descriptor socket, std::shared_ptr<WriteWindow> window,
                                                        FabricChoice fabric,
                                                        std::int64_t silence_ms = path_silence_ms_max);
  ~FabricServerPath() override;

  bool send(Transfer transfer) override;
  bool refuse(std::uint64_t ticket, const Error& error) override;
  void close() noexcept override;
  Result<void> run() override;

 private:
  static constexpr std::uint32_t buffers_count = 4;  // a buffer's number is its operation's, too
  static constexpr std::uint32_t hello_operation = buffers_count;

  /// Memory of the client for bytes of a request.
  struct Offer {
    std::uint64_t ticket = 0;
    std::uint64_t length = 0;
    MemoryPlace place;
  };
  enum class Stage : std::uint8_t { waiting, started, done };
  /// A piece of a request on its way to the client. It has the buffer until it has landed.
  struct Sending {
    Offer offer;
    std::uint32_t buffer = 0;
    Stage stage = Stage::waiting;
  };
  /// What the client sent, in its order: bytes to write, or the question whether all is written (length 0).
  struct Taking {
    FrameHeader header;
    MemoryPlace place;
    std::optional<std::uint32_t> buffer;
    Stage stage = Stage::waiting;
  };
  /// The request that is being sent.
  struct Request {
    Transfer transfer;
    std::size_t piece = 0;
    std::uint64_t done_of_piece = 0;
    std::uint64_t left = 0;
    std::optional<Error> failure;  ///< said once nothing of it is under way
  };

  FabricServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window, FabricChoice fabric, Descriptor wake,
                   std::int64_t silence_ms);
  Result<void> greet();
  Result<void> await_hello(std::span<const std::byte> password);
  Result<void> serve();
  /// Takes a frame of the client if there is one. Sleeps until something happens, if it may.
  Result<void> wait(bool may_sleep);
  Result<void> take_frame();
  Result<void> take_completions();
  void completed(std::uint32_t operation);

  // fabric_server_sending.cpp
  Result<bool> send_some();
  Result<bool> begin_request();
  Result<void> send_inline(const Transfer& transfer);
  Result<void> fill(Request& request, std::span<std::byte> bytes);
  Result<void> take_offer(const FrameHeader& header);

  // fabric_server_taking.cpp
  Result<bool> take_some();
  Result<void> take_request(const FrameHeader& header);
  Result<void> write(const Taking& taking);

  std::span<std::byte> buffer(std::uint32_t number) const noexcept {
    return memory_.bytes().subspan(number * frame_bytes_max, frame_bytes_max);
  }
  std::optional<std::uint32_t> free_buffer() const noexcept;
  bool takes_frames() const noexcept;
  /// True while the client has to do something, or the fabric: then there is a deadline.
  bool is_under_way() const noexcept;

  ServerFrames frames_;
  const std::shared_ptr<WriteWindow> window_;
  const std::uint64_t number_;  // of this path in the window
  const FabricChoice fabric_;
  const std::int64_t silence_ms_;
  const Descriptor wake_;
  TransferQueue jobs_;

  // Of its thread:
  MappedMemory memory_;
  std::unique_ptr<RmaEndpoint> endpoint_;  // ends before the memory does
  std::array<bool, buffers_count> used_{};
  bool refused_to_start_ = false;  // an operation; the fabric is to move on first
  bool hello_arrived_ = false;
  std::int64_t moved_ns_ = 0;  // when something last happened
  std::deque<Offer> offers_;
  std::deque<Sending> sendings_;
  std::optional<Request> request_;
  std::uint64_t last_ticket_ = 0;  // whatever comes for it, or for one before it, is late
  std::deque<Taking> takings_;
  std::optional<Error> write_failure_;  // the first since the client last asked
};

}  // namespace forebay::fabric
