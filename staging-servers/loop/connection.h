// SPDX-License-Identifier: Apache-2.0
// One client's connection: who the peer is, messages in and out, and the session that answers them.
// Knows its server only as a ConnectionHost.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "loop/event_loop.h"
#include "protocol/message_socket.h"

namespace forebay::server {

class Connection;

/// The peer as the kernel knows it.
struct Peer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  std::vector<gid_t> groups;
  bool administrator = false;  ///< root or the server's own user

  bool in_group(gid_t group) const noexcept;
};

/// What a connection is used for. Owned by its connection.
class Session {
 public:
  virtual ~Session() = default;
  virtual void handle(protocol::Message message) = 0;
  /// The peer is gone or has been sent away; the connection and this session are destroyed afterwards.
  virtual void closed(const std::string& reason) = 0;
};

/// What connections ask of the server that they lead to.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  /// The session that answers what this first message, after the greeting, asks for.
  virtual std::unique_ptr<Session> make_session(Connection& connection, protocol::MessageType first) = 0;
  /// What clients are greeted with.
  virtual wire::WelcomeT welcome() const = 0;
  /// Destroys the connection.
  virtual void remove(Connection& connection) = 0;
};

class Connection {
 public:
  static Result<std::unique_ptr<Connection>> accept(EventLoop& loop, ConnectionHost& host, Descriptor socket);
  ~Connection();

  const Peer& peer() const noexcept { return peer_; }
  EventLoop& loop() noexcept { return loop_; }

  template <class Table>
  void answer(protocol::MessageType type, std::uint32_t request, const Table& table,
              std::vector<Descriptor> descriptors = {}) {
    const auto body = protocol::pack(table);
    send(type, request, {body.data(), body.size()}, std::move(descriptors));
  }
  void answer_done(std::uint32_t request);
  void answer_failure(std::uint32_t request, const Error& error);
  /// The connection ends also when the peer's process does, although a forked child may keep the socket open.
  void end_with_process();

  /// Ends the connection once the message at hand has been dealt with.
  void close(const std::string& reason);
  /// The server ends: nothing is sent or handled any more.
  void abandon();
  bool closing() const noexcept { return closing_; }
  /// True once the peer has closed, or its process has ended, even if the event of it has not been handled yet.
  bool peer_gone() const noexcept;
  /// Expires with the connection: for answers that come from a worker.
  std::weak_ptr<const bool> alive() const noexcept { return alive_; }

  /// Segments that this peer has a descriptor of.
  std::set<std::uint32_t> segments_sent;

 private:
  Connection(EventLoop& loop, ConnectionHost& host, Descriptor socket, Peer peer);
  void send(protocol::MessageType type, std::uint32_t request, std::span<const std::uint8_t> body,
            std::vector<Descriptor> descriptors);
  void on_events(std::uint32_t events);
  void dispatch(protocol::Message message);
  void greet(const protocol::Message& message);

  EventLoop& loop_;
  ConnectionHost& host_;
  protocol::MessageSocket socket_;
  Peer peer_;
  Descriptor process_;  ///< pidfd, once the connection is to end with the process
  std::unique_ptr<Session> session_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  bool greeted_ = false;
  bool closing_ = false;
  bool watching_writable_ = false;
};

}  // namespace forebay::server
