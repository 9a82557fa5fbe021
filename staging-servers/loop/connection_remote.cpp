// SPDX-License-Identifier: Apache-2.0
// A connection of a client on another node: its greeting, what it may say, its data path, its end.
#include <sys/epoll.h>

#include <utility>

#include "base/clock.h"
#include "base/limited_log.h"
#include "base/return_error.h"
#include "fabric/probe_file.h"
#include "fabric/tcp_socket.h"
#include "loop/connection.h"
#include "loop/remote_door.h"

namespace forebay::server {
namespace {

constexpr std::size_t greeting_bytes_max = 4096;
// A writer that returns names the space that it holds, a reader its pins.
constexpr std::size_t proved_bytes_max = std::size_t{4} << 20;

// Of the loop's thread.
log::Limited refused_clients;
log::Limited admitted_clients;

}  // namespace

Result<std::unique_ptr<Connection>> Connection::accept_remote(EventLoop& loop, ConnectionHost& host,
                                                              Descriptor socket) {
  fabric::prepare_tcp(socket.get());
  Peer peer;
  peer.uid = static_cast<uid_t>(-1);
  peer.gid = static_cast<gid_t>(-1);
  peer.remote.emplace();
  peer.remote->address = fabric::peer_text(socket.get());
  peer.remote->network = fabric::peer_network(socket.get());
  std::unique_ptr<Connection> connection(new Connection(loop, host, std::move(socket), std::move(peer)));
  connection->socket_.set_body_bytes_max(greeting_bytes_max);
  connection->greeting_ = std::make_unique<RemoteGreeting>(*host.remote_door(), connection->peer_.remote->address);
  RETURN_IF_ERROR(connection->watch());
  connection->close_at(monotonic_ns() + host.remote_door()->greeting_ms() * ns_per_ms,
                       "it did not prove who it is in time");
  return connection;
}

void Connection::close_at(std::int64_t monotonic_ns, const char* reason) {
  if (end_timer_) loop_.cancel(*end_timer_);
  end_timer_ = loop_.at(monotonic_ns, [this, reason] {
    end_timer_.reset();
    close(reason);
  });
}

void Connection::end_remote() {
  if (end_timer_) loop_.cancel(*end_timer_);
  end_timer_.reset();
  // Before its pins go: what is sent from now on does not arrive.
  if (data_path_) data_path_->close();
  data_path_.reset();
  // Others may have the segments once nobody can write to them any more.
  if (window_) window_->close();
  window_.reset();
}

void Connection::refuse_remote(std::uint32_t request, const Error& error) {
  answer_failure(request, error);
  refused_clients.info("client at {} refused: {}", peer_.remote->address, error.message());
  close("refused");
}

void Connection::greet_remote(const protocol::Message& message) {
  using protocol::MessageType;
  const auto refuse = [&](const Error& error) { refuse_remote(message.request, error); };
  if (message.type == MessageType::data_hello && !greeting_->is_challenged()) {
    hand_over(message);
    return;
  }
  if (message.type == MessageType::remote_hello && !greeting_->is_challenged()) {
    greeting_->challenge(message, alive_,
                         [this, request = message.request](const Result<wire::RemoteChallengeT>& challenge) {
                           if (challenge) {
                             answer(MessageType::remote_challenge, request, *challenge);
                           } else {
                             refuse_remote(request, challenge.error());
                           }
                         });
    if (!closing_) host_.has_said_hello(*this);
    return;
  }
  if (message.type != MessageType::remote_proof || !greeting_->is_challenged()) {
    refuse(
        {ErrorCode::protocol, "this port is for Forebay's remote clients, which begin with a hello and a proof", ""});
    return;
  }
  auto peer = greeting_->admit(message);
  if (!peer) {
    refuse(peer.error());
    return;
  }
  socket_.encrypt(greeting_->cipher());
  socket_.set_body_bytes_max(proved_bytes_max);
  if (auto admitted = host_.remote_door()->admit(*peer->remote, alive_); !admitted) {
    refuse(admitted.error());
    return;
  }
  // What it holds counts for its user from now on.
  host_.unread_bytes().change(peer_.uid, std::exchange(unread_bytes_, 0), 0);
  peer_.uid = peer->uid;
  peer_.administrator = peer->administrator;
  if (auto placed = host_.admit(*this); !placed) {
    refuse(placed.error());
    return;
  }
  admitted(std::move(*peer));
  answer(MessageType::welcome, message.request, host_.remote_welcome());
}

void Connection::admitted(Peer peer) {
  greeted_ = true;
  has_place_ = true;
  host_.no_stranger(*this);
  greeting_.reset();
  close_at(monotonic_ns() + (peer.remote->expires_ns - wall_clock_ns()), "its token has expired");
  const std::string& reservation = peer.remote->reservation_id;
  admitted_clients.info("client at {} admitted as user {}{}", peer.remote->address, peer.uid,
                        reservation.empty() ? std::string() : ", reservation " + reservation);
  peer_ = std::move(peer);
}

void Connection::hand_over(const protocol::Message& message) {
  const auto body = protocol::body_of<wire::DataHello>(message);
  const bool whole = body && (*body)->ticket() != nullptr && (*body)->version() == protocol::protocol_version;
  const auto ticket =
      whole ? std::span((*body)->ticket()->data(), (*body)->ticket()->size()) : std::span<const std::uint8_t>();
  RemoteDoor& door = *host_.remote_door();
  if (auto valid = door.check_ticket(ticket); !valid) {
    answer_failure(message.request, valid.error());
    close("refused");
    return;
  }
  answer_done(message.request);
  // A client that has not even taken this is no client.
  const bool sent = !socket_.has_unsent() && !closing_;
  close("its socket is a data path now");
  if (sent) door.begin_data(ticket, socket_.release());
}

bool Connection::pass_remote(const protocol::Message& message) {
  using protocol::MessageType;
  if (peer_.remote->segments_only && !is_for_segments(message.type)) {
    if (message.request != 0)
      answer_failure(message.request, {ErrorCode::permission_denied, "this client has come for segments alone", ""});
    return false;
  }
  if (peer_.remote->segments_only && message.type == MessageType::member_open) return true;
  const bool as_on_this_node = (peer_.remote->identified && is_for_identified(message.type)) ||
                               (peer_.administrator && is_for_administrators(message.type));
  if (as_on_this_node) return true;
  const auto needed = rights_for(message.type);
  if (!needed || (*needed & peer_.remote->rights) == 0) {
    const char* what = needed ? "the token has no right to this; make one with `forebay token create --rights`"
                              : "a client on another node cannot ask for this; run the command on the server's node";
    if (message.request != 0) answer_failure(message.request, {ErrorCode::permission_denied, what, ""});
    return false;
  }
  if (message.type == MessageType::heartbeat) {
    answer_done(message.request);
    return false;
  }
  if (message.type == MessageType::data_open) {
    const auto body = protocol::body_of<wire::DataOpen>(message);
    const bool writes = body && (*body)->writes();
    // Who gets bytes needs the right to read for those of steps, and none to measure the path.
    const std::uint32_t right = writes ? fabric::right_write : fabric::rights_all;
    if (!body || (peer_.remote->rights & right) == 0) {
      answer_failure(message.request, {ErrorCode::permission_denied, "the token has no right to this", ""});
      return false;
    }
    auto ticket = host_.remote_door()->offer_data(*this, writes);
    if (!ticket) {
      answer_failure(message.request, ticket.error());
      return false;
    }
    wire::DataOpenedT opened;
    opened.ticket = std::move(*ticket);
    answer(MessageType::data_opened, message.request, opened);
    return false;
  }
  if (message.type == MessageType::probe_get) {
    send_probe(message);
    return false;
  }
  return true;
}

void Connection::send_probe(const protocol::Message& message) {
  const auto body = protocol::body_of<wire::ProbeGet>(message);
  if (!body || !data_path_ || (*body)->bytes() == 0 || (*body)->bytes() > fabric::probe_bytes_max) {
    close("a probe asks for no bytes or for too many, or has no data path");
    return;
  }
  fabric::Transfer transfer;
  transfer.ticket = (*body)->ticket();
  transfer.pieces.push_back({std::make_shared<const fabric::ProbeFile>(), 0, (*body)->bytes()});
  if (!data_path_->send(std::move(transfer))) close("too many requests for bytes wait for the data path");
}

const std::shared_ptr<fabric::WriteWindow>& Connection::window() {
  if (!window_) window_ = std::make_shared<fabric::WriteWindow>();
  return window_;
}

void Connection::use_data_path(std::shared_ptr<fabric::ServerPath> path) {
  if (data_path_) data_path_->close();
  data_path_ = std::move(path);
}

}  // namespace forebay::server
