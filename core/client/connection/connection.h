// SPDX-License-Identifier: Apache-2.0
// A client's connection to its staging server: requests and their answers, in any order and from any thread. There is
// no thread behind it: whoever waits for an answer receives for all. It never comes back once broken; see reconnect.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <forebay/address.h>
#include <forebay/writer.h>

#include "base/clock.h"
#include "fabric/data_path.h"
#include "fabric/handshake.h"
#include "protocol/message_socket.h"

namespace forebay::client {

class Connection {
 public:
  /// Connects and exchanges Hello and Welcome, with a remote server also proofs (connection_remote.cpp). Errors:
  /// disconnected (nobody listens), timeout, cancelled, protocol; permission_denied (a remote server refuses the
  /// token).
  static Result<std::shared_ptr<Connection>> open(const ServerPlace& place, Deadline deadline, InterruptHook interrupt);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Sends a request and returns its number for wait().
  template <class Object>
  Result<std::uint32_t> start(protocol::MessageType type, const Object& body) {
    const auto packed = protocol::pack(body);
    return send(type, {packed.data(), packed.size()}, true);
  }

  /// Sends a message that has no answer. Does not wait.
  template <class Object>
  Result<void> tell(protocol::MessageType type, const Object& body) {
    const auto packed = protocol::pack(body);
    if (auto sent = send(type, {packed.data(), packed.size()}, false); !sent) return fail(std::move(sent.error()));
    return {};
  }

  /// Waits for an answer, which may be a Failure. Errors: timeout and cancelled (the request goes on and may be waited
  /// for again), or why the connection is broken.
  Result<protocol::Message> wait(std::uint32_t request, Deadline deadline);

  /// start() and wait(), expecting an answer of type `expected`; a Failure is returned as its error. The answer to a
  /// request that was not waited for to its end is thrown away.
  template <class Object>
  Result<protocol::Message> call(protocol::MessageType type, const Object& body, protocol::MessageType expected,
                                 Deadline deadline = Deadline::never()) {
    auto request = start(type, body);
    if (!request) return fail(std::move(request.error()));
    auto answer = wait(*request, deadline);
    if (!answer) {
      forget(*request);
      return answer;
    }
    return expect(std::move(*answer), expected);
  }

  /// Nobody waits for the answer any more. If it brings a step, take_unwanted_steps() gives it, else it is thrown away.
  void forget(std::uint32_t request);
  /// Steps that were asked for and then forgotten: the server holds each until it is released.
  std::vector<protocol::Message> take_unwanted_steps();

  /// For a request that is answered at once. A server of this node that lives answers; one on another node is given up
  /// when it answers nothing, and a request when it is not answered although others are.
  Deadline request_deadline() const {
    constexpr std::int64_t request_timeout_ms = 60'000;
    return is_remote() ? Deadline::after_ms(request_timeout_ms) : Deadline::never();
  }
  /// To a server on another node: no descriptors come, bytes of steps take a data path.
  bool is_remote() const noexcept { return place_.remote.has_value(); }
  /// Opens the data path if it is not open yet: for writing to what is granted, or for fetch(). `data_mutex_` is held.
  Result<void> open_data(bool writes);
  /// Bytes of extents of one step, one behind another. They count once the server has said that the step is still
  /// there. One at a time; others wait.
  Result<void> fetch(wire::BytesGetT request, fabric::Incoming incoming);
  /// Bytes of no step, as fast as the data path brings them.
  Result<void> probe(std::span<std::byte> out);
  /// Of libfabric, once a data path is open; empty: bytes of steps travel over TCP.
  std::string provider();
  /// Sends bytes to a granted place. They may be on their way when it returns.
  Result<void> store(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until all that was stored is written.
  Result<void> finish_stores();

  /// Ends it, without memory; see connection_guard.h. Who waits for an answer is told.
  void give_up() noexcept;
  /// True once the server's end is gone or has sent something that makes no sense.
  bool is_broken();
  std::uint64_t server_run() const noexcept { return server_run_; }
  const std::string& root_uuid() const noexcept { return root_uuid_; }
  const ServerPlace& place() const noexcept { return place_; }

  /// The message if it is of the type expected, the error of a Failure, else ErrorCode::protocol.
  static Result<protocol::Message> expect(protocol::Message message, protocol::MessageType type);

 private:
  friend class DataLane;

  Connection(Descriptor socket, ServerPlace place, InterruptHook interrupt);

  Result<std::uint32_t> send(protocol::MessageType type, std::span<const std::uint8_t> body, bool with_answer);
  Result<void> greet(Deadline deadline);
  // connection_remote.cpp
  static Result<std::shared_ptr<Connection>> open_remote(const ServerPlace& place, Deadline deadline,
                                                         InterruptHook interrupt);
  /// What is shown to a server on another node.
  struct Shown {
    fabric::Token token;
    fabric::Nonce nonce{};  // what MUNGE says holds for this one alone
    std::uint32_t uid = 0;  // for whom the token was made
  };
  Result<void> prove(const Shown& shown, Deadline deadline);
  /// The token, or what an introduction or MUNGE puts in its place.
  static Result<Shown> what_to_show(const ServerPlace& place, Deadline deadline, const InterruptHook& interrupt);
  /// A connection to the same server by its socket, if this process is on its node: the same boot, a socket that can be
  /// reached, and a hello that shows the same root. Null if not.
  std::shared_ptr<Connection> on_this_node(Deadline deadline);
  Result<void> take_welcome(const protocol::Message& answer);
  /// What a data path does while nothing moves on it.
  fabric::KeepWaiting keep_waiting();
  Result<void> check_data(Result<void> done);
  /// One turn of receiving, of at most `timeout_ms`. Called by one thread at a time, without locks.
  Result<void> receive_some(std::int64_t timeout_ms, std::vector<protocol::Message>& messages);
  /// An answer that nobody waits for. Under mutex_.
  void discard(protocol::Message message);
  void break_with(Error error);  // moves it: no memory is needed
  Error broken_error() const;

  // Constant after construction.
  const ServerPlace place_;
  const InterruptHook interrupt_;
  std::uint64_t server_run_ = 0;
  std::string root_uuid_;
  std::string servers_boot_id_;  // empty: not said
  std::string servers_socket_;   // likewise
  std::uint32_t token_uid_ = 0;  // of Shown

  std::mutex send_mutex_;  // sending; never held together with mutex_
  std::mutex mutex_;       // all below
  std::condition_variable answered_;
  std::uint32_t last_request_ = 0;
  bool receiving_ = false;
  std::optional<Error> broken_;
  std::unordered_map<std::uint32_t, protocol::Message> answers_;
  std::unordered_set<std::uint32_t> outstanding_;  // requests whose answers somebody wants
  std::vector<protocol::Message> unwanted_steps_;

  std::mutex data_mutex_;                     // taken before the others
  std::unique_ptr<fabric::ClientPath> data_;  // guarded by data_mutex_; null until it is needed
  std::uint64_t last_ticket_ = 0;             // guarded by data_mutex_

  protocol::MessageSocket socket_;  // its sending side is guarded by send_mutex_, its receiving side by receiving_
};

}  // namespace forebay::client
