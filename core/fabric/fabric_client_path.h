// SPDX-License-Identifier: Apache-2.0
// The client's end of a fabric path. It offers memory of its own, a piece at a time, and the server reads or writes it;
// the socket tells which, and carries small requests whole. A thread keeps the fabric moving, also while the program
// computes.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>

#include "base/descriptor.h"
#include "fabric/data_path.h"
#include "fabric/frame_socket.h"
#include "fabric/mapped_memory.h"
#include "fabric/rma_endpoint.h"

namespace forebay::fabric {

class FabricClientPath final : public ClientPath {
 public:
  /// Exchanges greetings with the server over a connected socket, and a first message over the fabric.
  /// unsupported, with what to do, if this end or the server cannot. `silence_ms`: see path_silence_ms_max.
  static Result<std::unique_ptr<FabricClientPath>> open(Descriptor socket, const EndpointMaker& make_endpoint,
                                                        const KeepWaiting& keep_waiting,
                                                        std::int64_t silence_ms = path_silence_ms_max);
  /// Nobody reads or writes the memory any more; only then it is given back.
  ~FabricClientPath() override;

  Result<void> receive(std::uint64_t ticket, Incoming incoming, const KeepWaiting& keep_waiting) override;
  Result<void> write(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                     const KeepWaiting& keep_waiting) override;
  Result<void> finish_writes(const KeepWaiting& keep_waiting) override;
  Result<std::size_t> write_some(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                                 const KeepWaiting& keep_waiting) override;
  Result<bool> receive_some(std::uint64_t ticket, Incoming& incoming, const KeepWaiting& keep_waiting) override;
  int descriptor() const noexcept override { return frames_.descriptor(); }
  /// It waits for memory that the server gives back.
  bool write_waits_to_send() const noexcept override { return false; }
  std::string provider() const override { return provider_; }
  bool is_broken() const noexcept override;

 private:
  static constexpr std::size_t slots_count = 4;
  /// A piece of the memory, while the server has it: exposed.
  struct Slot {
    std::span<std::byte> memory;
    std::unique_ptr<ExposedMemory> exposed;
  };

  FabricClientPath(Descriptor socket, std::int64_t silence_ms) noexcept : frames_(std::move(socket), silence_ms) {}
  Result<void> greet(const EndpointMaker& make_endpoint, const KeepWaiting& keep_waiting);
  Result<void> say_hello(std::span<const std::byte> password, const KeepWaiting& keep_waiting);
  /// The life of thread_.
  void move_on() noexcept;
  /// Tells the server about `length` bytes of the slot.
  Result<void> offer(Slot& slot, FrameHeader header, PeerMay may, const KeepWaiting& keep_waiting);
  enum class Waits { no, yes };
  /// The server's next frame; nothing: it has not come yet, and `waits` is no.
  Result<std::optional<FrameHeader>> next_frame(Waits waits, const KeepWaiting& keep_waiting);
  Result<bool> take(std::uint64_t ticket, Incoming& incoming, Waits waits, const KeepWaiting& keep_waiting);
  Result<bool> take_by_memory(std::uint64_t ticket, Incoming& incoming, Waits waits, std::optional<Error>& failure,
                              const KeepWaiting& keep_waiting);
  /// What landed in the slot.
  static void copy_out(const Slot& slot, std::size_t length, Incoming& incoming);
  Result<std::size_t> give(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes, Waits waits,
                           const KeepWaiting& keep_waiting);
  /// A slot that the server has not; null: it has all, and `waits` is no.
  Result<Slot*> free_slot(Waits waits, const KeepWaiting& keep_waiting);
  /// A frame while blocks are on their way to the server: it gives a slot back.
  Result<void> take_back(const FrameHeader& header);
  Result<void> write_inline(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                            const KeepWaiting& keep_waiting);
  /// The program's own process, not a child that it forked.
  Result<void> check_process() const;

  FrameSocket frames_;
  std::string provider_;  // constant after open()
  MappedMemory memory_;
  std::unique_ptr<RmaEndpoint> endpoint_;
  std::array<Slot, slots_count> slots_;
  /// A request whose bytes come by memory: it goes round the slots.
  struct Receiving {
    std::uint64_t not_offered = 0;
    std::size_t next_offer = 0;
    std::size_t next_arrival = 0;
  };
  std::optional<Receiving> receiving_;
  std::optional<MovingFrame> frame_;  // whose header has come in part
  std::uint64_t finishes_ = 0;
  bool broken_ = false;
  pid_t process_ = 0;

  Descriptor wake_;
  std::atomic<bool> ends_ = false;
  std::atomic<bool> lost_ = false;       // the fabric's connection
  std::unique_ptr<std::thread> thread_;  // null in a forked child's copy at its end
};

}  // namespace forebay::fabric
