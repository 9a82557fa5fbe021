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
  /// `socket` is connected; it is made non-blocking. More descriptors than `received_descriptors_max` that wait for
  /// their messages end the conversation: a server, which is never sent any, takes 0.
  explicit MessageSocket(Descriptor socket, std::size_t received_descriptors_max = received_descriptors_default);

  int descriptor() const noexcept { return socket_.get(); }

  /// Sends at once what the socket takes and keeps the rest for flush(). `descriptors` are closed once sent.
  /// Errors: disconnected; protocol if the body is too large.
  Result<void> send(MessageType type, std::uint32_t request, std::span<const std::uint8_t> body,
                    std::vector<Descriptor> descriptors = {});

  /// Sends what is still queued. True if nothing is left.
  Result<bool> flush();
  bool has_unsent() const noexcept { return !unsent_.empty(); }
  std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }
  std::size_t unsent_descriptors() const noexcept { return unsent_descriptors_; }

  /// Reads what has arrived, without waiting, and not so much at once that others would wait for it. disconnected once
  /// the peer has closed, protocol for a malformed header.
  Result<void> receive();

  /// The next whole message that has been received; one of type none, which no peer sends, where what was received
  /// cannot be one.
  std::optional<Message> pop();

 private:
  static constexpr std::size_t received_descriptors_default = 16384;
  struct Unsent {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    std::vector<Descriptor> descriptors;
  };
  Result<std::size_t> send_some(std::span<const std::byte> first, std::span<const std::byte> second,
                                const std::vector<Descriptor>& descriptors);

  Descriptor socket_;
  std::size_t received_descriptors_max_;
  std::deque<Unsent> unsent_;
  std::size_t unsent_bytes_ = 0;
  std::size_t unsent_descriptors_ = 0;
  std::vector<std::byte> received_;
  std::size_t received_start_ = 0;
  std::deque<Descriptor> received_descriptors_;
};

}  // namespace forebay::protocol
