// SPDX-License-Identifier: Apache-2.0
// Sends and receives messages and descriptors over a non-blocking Unix stream socket. Servers drive it from an event
// loop, clients wait with poll. Sending and receiving may be done by two different threads.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "protocol/message.h"

namespace forebay::protocol {

class MessageSocket {
 public:
  /// `socket` is connected; it is made non-blocking.
  explicit MessageSocket(Descriptor socket);

  int descriptor() const noexcept { return socket_.get(); }

  /// Sends at once what the socket takes and keeps the rest for flush(). `descriptors` are closed once sent.
  /// Errors: disconnected; protocol if the body is too large.
  Result<void> send(MessageType type, std::uint32_t request, std::span<const std::uint8_t> body,
                    std::vector<Descriptor> descriptors = {});

  /// Sends what is still queued. True if nothing is left.
  Result<bool> flush();
  bool has_unsent() const noexcept { return !unsent_.empty(); }
  std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }

  /// Reads what has arrived, without waiting. disconnected once the peer has closed, protocol for a malformed header.
  Result<void> receive();

  /// The next whole message that has been received.
  std::optional<Message> pop();

 private:
  struct Unsent {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    std::vector<Descriptor> descriptors;
  };
  Result<std::size_t> send_some(std::span<const std::byte> first, std::span<const std::byte> second,
                                const std::vector<Descriptor>& descriptors);

  Descriptor socket_;
  std::deque<Unsent> unsent_;
  std::size_t unsent_bytes_ = 0;
  std::vector<std::byte> received_;
  std::size_t received_start_ = 0;
  std::deque<Descriptor> received_descriptors_;
};

}  // namespace forebay::protocol
