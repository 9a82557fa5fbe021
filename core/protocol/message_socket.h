// SPDX-License-Identifier: Apache-2.0
// Sends and receives messages and descriptors over a non-blocking Unix stream socket, or messages over TCP. Servers
// drive it from an event loop, clients wait with poll. Sending and receiving may be done by two different threads.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "base/record_cipher.h"
#include "protocol/message.h"

namespace forebay::protocol {

class MessageSocket {
 public:
  /// `socket` is connected; it is made non-blocking. More descriptors than `received_descriptors_max` that wait for
  /// their messages end the conversation: a server, which is never sent any, takes 0.
  explicit MessageSocket(Descriptor socket, std::size_t received_descriptors_max = received_descriptors_default);

  int descriptor() const noexcept { return socket_.get(); }

  /// Longer messages end the conversation; body_bytes_max unless this was called.
  void set_body_bytes_max(std::size_t bytes) noexcept { received_body_bytes_max_ = bytes; }
  /// From now on each message, in both directions, is a record. No descriptors travel then. Null: nothing changes.
  void encrypt(std::unique_ptr<RecordCipher> cipher) noexcept { cipher_ = std::move(cipher); }
  /// Gives the socket to another owner.
  Descriptor release() noexcept { return std::move(socket_); }

  /// Sends at once what the socket takes and keeps the rest for flush(). `descriptors` are closed once sent.
  /// Errors: disconnected; protocol if the body is too large.
  Result<void> send(MessageType type, std::uint32_t request, std::span<const std::uint8_t> body,
                    std::vector<Descriptor> descriptors = {});

  /// Sends what is still queued. True if nothing is left.
  Result<bool> flush();
  bool has_unsent() const noexcept { return !unsent_.empty(); }
  std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }
  std::size_t unsent_descriptors() const noexcept { return unsent_descriptors_; }
  /// What has arrived of messages that are not whole yet.
  std::size_t unfinished_bytes() const noexcept { return received_.size() - received_start_; }

  /// Reads what has arrived, without waiting, not so much at once that others would wait for it, and no more than the
  /// longest message that may come. disconnected once the peer has closed, protocol for a malformed header.
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
  /// What may be in received_ before it must hold a whole message, or what cannot be one.
  std::size_t unfinished_bytes_max() const noexcept;
  void keep_unsent(std::vector<std::byte> bytes, std::size_t sent, std::vector<Descriptor> descriptors);
  Result<void> send_record(std::span<const std::byte> header, std::span<const std::byte> body);
  /// A whole record that has arrived, taken off; nothing if there is none yet. protocol if it cannot be one.
  Result<std::optional<std::vector<std::byte>>> take_record();
  /// Everything that arrived before these is taken off.
  void advance(std::size_t bytes);
  /// What cannot be a message ends the conversation.
  Message malformed(Message message);
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
  std::size_t received_body_bytes_max_ = body_bytes_max;
  std::unique_ptr<RecordCipher> cipher_;
};

}  // namespace forebay::protocol
