// SPDX-License-Identifier: Apache-2.0
// One client's connection: who the peer is, messages in and out, and the session that answers them.
// Knows its server only as a ConnectionHost.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/data_path.h"
#include "fabric/write_window.h"
#include "loop/event_loop.h"
#include "loop/user_shares.h"
#include "loop/user_turns.h"
#include "protocol/message_socket.h"

namespace forebay::server {

class Connection;
class RemoteDoor;
class RemoteGreeting;

/// What the token of a client on another node says, or what another server of the pool says of it.
struct RemotePeer {
  std::string address;         ///< where it comes from
  std::string network;         ///< what counts as one before the proof: the address without its port
  std::string reservation_id;  ///< the only one that it may use; empty: any that its user may
  std::uint64_t access_generation = 0;
  uid_t uid = 0;             ///< for whom it was made
  std::uint32_t rights = 0;  ///< fabric::right_read, …; none before it has proved that it has the token
  std::uint64_t token = 0;   ///< serial number of its token: clients with the same one are one client to the limits
  std::int64_t expires_ns = 0;
  /// It is known as who it is, as on this node: its rights are its user's, and no token's.
  bool identified = false;
  /// It has come for segments alone, with a permit.
  bool segments_only = false;
};

/// The peer as the kernel knows it, or as its token says.
struct Peer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  std::vector<gid_t> groups;
  bool administrator = false;        ///< root or the server's own user
  std::optional<RemotePeer> remote;  ///< on another node: it has no process here, and gets no descriptors

  bool in_group(gid_t group) const noexcept;
  /// For people: "process 17", or where it comes from.
  std::string describe() const;
};

/// What a connection is used for. Owned by its connection.
class Session {
 public:
  virtual ~Session() = default;
  virtual void handle(protocol::Message message) = 0;
  /// The peer is gone or has been sent away; the connection and this session are destroyed afterwards.
  virtual void closed(const std::string& reason) = 0;
  /// Somebody's rights in this reservation have changed: what uses it without the right ends.
  virtual void rights_changed([[maybe_unused]] const std::string& reservation) {}
  /// What it keeps of what the peer has said, beside what the reservation's space bounds.
  virtual std::size_t kept_bytes() const { return 0; }
  /// It reads or writes there.
  virtual bool uses([[maybe_unused]] const std::string& reservation) const { return false; }
};

/// What connections ask of the server that they lead to.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  /// The session that answers what this first message, after the greeting, asks for.
  virtual std::unique_ptr<Session> make_session(Connection& connection, protocol::MessageType first) = 0;
  /// What clients are greeted with.
  virtual wire::WelcomeT welcome() const = 0;
  /// The same for those that came by TCP, once they have proved who they are: also where the server is on its node.
  virtual wire::WelcomeT remote_welcome() const { return welcome(); }
  /// How long a client of this node has until it must have said hello.
  virtual std::int64_t hello_ms() const = 0;
  /// Lets a client of this node in, which has said hello. busy if its user has as many connections as it may.
  virtual Result<void> admit(Connection& connection) = 0;
  /// The client on another node has said what it will prove, and was, or will be, challenged.
  virtual void has_said_hello(Connection&) {}
  /// The client has proved who it is, or has said hello, or will not any more.
  virtual void no_stranger(Connection& connection) = 0;
  /// What of messages is unfinished, or kept by sessions, and what of answers is unread, by user.
  virtual ByteShares& unread_bytes() = 0;
  /// Who has more to say than is dealt with at once.
  virtual UserTurns& turns() = 0;
  /// Destroys the connection.
  virtual void remove(Connection& connection) = 0;
  /// What clients on other nodes have to pass; null where there are none.
  virtual RemoteDoor* remote_door() { return nullptr; }
};

class Connection {
 public:
  /// What a descriptor that waits to be sent counts among the bytes that its user has not read.
  static constexpr std::uint64_t descriptor_bytes = std::uint64_t{64} << 10;

  static Result<std::unique_ptr<Connection>> accept(EventLoop& loop, ConnectionHost& host, Descriptor socket);
  /// Of a client on another node, which has to prove what it may do.
  static Result<std::unique_ptr<Connection>> accept_remote(EventLoop& loop, ConnectionHost& host, Descriptor socket);
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
  /// This request is no longer to be answered.
  void drop_request() noexcept { under_way_ -= under_way_ > 0 ? 1 : 0; }
  void answer_failure(std::uint32_t request, const Error& error);
  /// The connection ends also when the peer's process does, although a forked child may keep the socket open.
  void end_with_process();
  /// Handles what the peer has sent and nobody has looked at yet: for a while, then the others have their turn.
  void receive();
  /// The peer is gone: handles all that it sent before, whoever waits.
  void receive_rest();
  /// It is its turn again (UserTurns).
  void go_on();
  /// The peer or its process has ended the connection, and not this server.
  bool ended_by_peer() const noexcept { return ended_by_peer_; }

  /// See Session::rights_changed.
  void rights_changed(const std::string& reservation);
  /// See Session::uses.
  bool uses(const std::string& reservation) const { return session_ && session_->uses(reservation); }
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
  std::uint64_t number = 0;  ///< by which its host finds it

  // connection_remote.cpp: of remote peers only
  bool is_remote() const noexcept { return peer_.remote.has_value(); }
  bool greeted() const noexcept { return greeted_; }
  /// It counts among its user's connections.
  bool has_place() const noexcept { return has_place_; }
  /// Where it may write; made when it first asks for a data path or is granted space.
  const std::shared_ptr<fabric::WriteWindow>& window();
  /// Bytes of steps go this way from now on; an earlier one is closed.
  void use_data_path(std::shared_ptr<fabric::ServerPath> path);
  /// Null if the client has opened none.
  fabric::ServerPath* data_path() const noexcept { return data_path_.get(); }

 private:
  Connection(EventLoop& loop, ConnectionHost& host, Descriptor socket, Peer peer);
  void send(protocol::MessageType type, std::uint32_t request, std::span<const std::uint8_t> body,
            std::vector<Descriptor> descriptors);
  void on_events(std::uint32_t events);
  enum class Turn : std::uint8_t {
    none,  ///< others of its user that wait come first
    its_own,
    last,  ///< whatever it takes
  };
  void receive(Turn turn);
  /// False if it is to go on later.
  bool handle_received(Turn turn, std::int64_t until_ns);
  /// Tells what it holds in memory for the peer; ends the connection if that is too much.
  void count_unread();
  void dispatch(protocol::Message message);
  void greet(const protocol::Message& message);
  Result<void> watch();
  /// As far as it is to be told of what comes, and may be sent.
  void watch_again();
  /// Is what has come to be dealt with after what others of its user have said?
  bool comes_later(Turn turn, bool first) const;
  /// Nothing is read meanwhile.
  void wait_for_turn();
  // connection_remote.cpp
  void greet_remote(const protocol::Message& message);
  void refuse_remote(std::uint32_t request, const Error& error);
  void admitted(Peer peer);
  void hand_over(const protocol::Message& hello);
  /// False if a remote peer may not say this, or if it is answered here.
  bool pass_remote(const protocol::Message& message);
  void send_probe(const protocol::Message& message);
  void close_at(std::int64_t monotonic_ns, const char* reason);
  void end_remote();

  EventLoop& loop_;
  ConnectionHost& host_;
  protocol::MessageSocket socket_;
  Peer peer_;
  Descriptor process_;  ///< pidfd, once the connection is to end with the process
  std::unique_ptr<Session> session_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  std::uint32_t under_way_ = 0;                    ///< requests that were not answered yet
  std::uint64_t unread_bytes_ = 0;                 ///< as counted
  std::optional<protocol::Message> next_message_;  ///< that waits for its turn
  bool waits_for_turn_ = false;
  bool greeted_ = false;
  bool has_place_ = false;
  bool closing_ = false;
  bool ended_by_peer_ = false;
  bool watching_writable_ = false;
  std::unique_ptr<RemoteGreeting> greeting_;  ///< of a remote peer, until it has proved
  std::optional<EventLoop::TimerId> end_timer_;
  std::shared_ptr<fabric::WriteWindow> window_;
  std::shared_ptr<fabric::ServerPath> data_path_;
};

}  // namespace forebay::server
