// SPDX-License-Identifier: Apache-2.0
#include "loop/connection.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "loop/remote_door.h"

namespace forebay::server {
namespace {

// A client that does not read its answers is sent away rather than kept in memory.
constexpr std::size_t unsent_bytes_max = std::size_t{128} << 20;
constexpr std::size_t remote_unsent_bytes_max = std::size_t{16} << 20;
// One of each kind, and 64 requests for steps, are what a client needs.
constexpr std::uint32_t requests_under_way_max = 256;
constexpr std::size_t unsent_descriptors_max = 1024;
// No message of a client carries any.
constexpr std::size_t received_descriptors_max = 0;
// A writer that returns names the space that it holds, a reader its pins.
constexpr std::size_t greeted_bytes_max = std::size_t{4} << 20;
// Before a client of this node has said hello.
constexpr std::size_t hello_bytes_max = 4096;

}  // namespace

bool Peer::in_group(gid_t group) const noexcept {
  return gid == group || std::ranges::find(groups, group) != groups.end();
}

std::string Peer::describe() const {
  return remote ? remote->address : "process " + std::to_string(pid);
}

Result<std::unique_ptr<Connection>> Connection::accept(EventLoop& loop, ConnectionHost& host, Descriptor socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return system_error(errno, "cannot identify the peer");
  Peer peer;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  peer.pid = credentials.pid;
  peer.administrator = peer.uid == 0 || peer.uid == ::geteuid();
  length = 0;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERGROUPS, nullptr, &length) != 0 && errno == ERANGE) {
    peer.groups.resize(length / sizeof(gid_t));
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &length) != 0) peer.groups.clear();
  }
  std::unique_ptr<Connection> connection(new Connection(loop, host, std::move(socket), std::move(peer)));
  connection->socket_.set_body_bytes_max(hello_bytes_max);
  RETURN_IF_ERROR(connection->watch());
  connection->close_at(monotonic_ns() + host.hello_ms() * ns_per_ms, "it did not say hello in time");
  return connection;
}

Result<void> Connection::watch() {
  return loop_.watch(socket_.descriptor(), EPOLLIN | EPOLLRDHUP, [this](std::uint32_t events) { on_events(events); });
}

void Connection::watch_again() {
  // Nobody is told again of what waits for its turn: thousands of connections of one user would be before others.
  const std::uint32_t readable = waits_for_turn_ ? 0U : EPOLLIN | EPOLLRDHUP;
  loop_.change(socket_.descriptor(), readable | (watching_writable_ ? EPOLLOUT : 0U));
}

void Connection::wait_for_turn() {
  waits_for_turn_ = true;
  host_.turns().wait(*this);
  watch_again();
}

Connection::Connection(EventLoop& loop, ConnectionHost& host, Descriptor socket, Peer peer)
    : loop_(loop), host_(host), socket_(std::move(socket), received_descriptors_max), peer_(std::move(peer)) {}

Connection::~Connection() {
  if (waits_for_turn_) host_.turns().forget(*this);
  end_remote();
  host_.unread_bytes().change(peer_.uid, unread_bytes_, 0);
  loop_.forget(socket_.descriptor());
  if (process_.valid()) loop_.forget(process_.get());
}

void Connection::send(protocol::MessageType type, std::uint32_t request, std::span<const std::uint8_t> body,
                      std::vector<Descriptor> descriptors) {
  if (closing_) return;
  if (request != 0 && under_way_ > 0) --under_way_;
  if (is_remote()) descriptors.clear();  // There is no other way to be sure.
  fail_point("server.message.before_send");
  if (auto sent = socket_.send(type, request, body, std::move(descriptors)); !sent) {
    ended_by_peer_ = sent.error().code == ErrorCode::disconnected;
    close(sent.error().message());
    return;
  }
  const std::size_t bytes_max = is_remote() ? remote_unsent_bytes_max : unsent_bytes_max;
  if (socket_.unsent_bytes() > bytes_max || socket_.unsent_descriptors() > unsent_descriptors_max) {
    close("the client does not read its answers");
    return;
  }
  count_unread();
  if (socket_.has_unsent() && !watching_writable_ && !closing_) {
    watching_writable_ = true;
    watch_again();
  }
}

void Connection::count_unread() {
  if (closing_) return;
  const std::uint64_t now = socket_.unfinished_bytes() + (next_message_ ? next_message_->body.size() : 0) +
                            socket_.unsent_bytes() + socket_.unsent_descriptors() * descriptor_bytes +
                            (session_ ? session_->kept_bytes() : 0);
  const std::uint64_t before = std::exchange(unread_bytes_, now);
  if (host_.unread_bytes().change(peer_.uid, before, now)) return;
  close("its user has as many bytes of unfinished messages, long requests and unread answers as it may");
}

void Connection::answer_done(std::uint32_t request) {
  answer(protocol::MessageType::done, request, wire::DoneT{});
}

void Connection::answer_failure(std::uint32_t request, const Error& error) {
  wire::FailureT failure;
  failure.code = static_cast<std::uint8_t>(error.code);
  failure.what = error.what;
  failure.where = error.where;
  answer(protocol::MessageType::failure, request, failure);
}

bool Connection::peer_gone() const noexcept {
  if (closing_) return true;
  // Whatever it said before and nobody has received yet.
  pollfd left{socket_.descriptor(), POLLRDHUP, 0};
  if (::poll(&left, 1, 0) > 0) return true;
  pollfd ended{process_.get(), POLLIN, 0};
  return process_.valid() && ::poll(&ended, 1, 0) > 0;
}

void Connection::end_with_process() {
  if (is_remote() || process_.valid() || closing_) return;
  process_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer_.pid, 0)));
  if (!process_.valid()) {
    ended_by_peer_ = errno == ESRCH;
    if (ended_by_peer_) close("the process ended");
    return;
  }
  auto watched = loop_.watch(process_.get(), EPOLLIN, [this](std::uint32_t) {
    receive_rest();
    ended_by_peer_ = true;
    close("the process ended");
  });
  if (!watched) process_.reset();
}

void Connection::rights_changed(const std::string& reservation) {
  if (session_ && !closing_) session_->rights_changed(reservation);
}

void Connection::abandon() {
  closing_ = true;
  if (waits_for_turn_) host_.turns().forget(*this);
  end_remote();
  loop_.forget(socket_.descriptor());
  if (process_.valid()) loop_.forget(process_.get());
}

void Connection::close(const std::string& reason) {
  if (closing_) return;
  abandon();
  loop_.post_in_turns([this, reason] {
    if (session_) session_->closed(reason);
    host_.remove(*this);
  });
}

void Connection::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    auto flushed = socket_.flush();
    if (!flushed) {
      close(flushed.error().message());
      return;
    }
    count_unread();
    if (*flushed && watching_writable_) {
      watching_writable_ = false;
      watch_again();
    }
  }
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void Connection::receive() {
  receive(Turn::none);
}

void Connection::receive_rest() {
  // What waits for its turn may have kept it from reading what came later.
  if (waits_for_turn_) receive(Turn::last);
  receive(Turn::last);
}

void Connection::go_on() {
  waits_for_turn_ = false;
  receive(Turn::its_own);
  if (!waits_for_turn_ && !closing_) watch_again();
}

bool Connection::comes_later(Turn turn, bool first) const {
  const UserTurns& turns = host_.turns();
  // A local hello costs nothing. To answer a remote one takes as long as many requests: strangers are one user.
  return turn == Turn::none && (greeted_ || is_remote()) &&
         (turns.is_waiting(peer_.uid) || (first && turns.has_spent(peer_.uid)));
}

bool Connection::handle_received(Turn turn, std::int64_t until_ns) {
  // However short a turn is, one message is dealt with in it.
  for (bool first = true; !closing_; first = false) {
    if (!next_message_) next_message_ = socket_.pop();
    if (!next_message_) return true;
    const bool is_over = !first && monotonic_ns() >= until_ns;
    if (turn != Turn::last && (comes_later(turn, first) || is_over)) return false;
    fail_point("server.message.received");
    dispatch(*std::exchange(next_message_, std::nullopt));
  }
  return true;
}

void Connection::receive(Turn turn) {
  if (closing_ || (waits_for_turn_ && turn != Turn::last)) return;
  if (comes_later(turn, true)) {
    wait_for_turn();
    return;
  }
  const uid_t user = peer_.uid;  // a proof changes it
  const std::int64_t begun_ns = monotonic_ns();
  const auto received = socket_.receive();
  // What arrived before the end still counts.
  const bool handled = handle_received(turn, begun_ns + host_.turns().turn_ns());
  host_.turns().spend(user, monotonic_ns() - begun_ns);
  count_unread();
  const bool breaks_protocol = !received && received.error().code == ErrorCode::protocol;
  // Who breaks it does not wait: the descriptors that it sent would stay open meanwhile.
  if (!handled && !closing_ && !breaks_protocol) {
    wait_for_turn();
    return;
  }
  if (received || closing_) return;
  ended_by_peer_ = !breaks_protocol;
  close(received.error().message());
}

void Connection::greet(const protocol::Message& message) {
  auto hello = protocol::body_of<wire::Hello>(message);
  if (!hello || message.type != protocol::MessageType::hello) {
    close("the first message was not a hello");
    return;
  }
  if ((*hello)->version() != protocol::protocol_version) {
    answer_failure(message.request,
                   {ErrorCode::unsupported,
                    "the server speaks protocol version " + std::to_string(protocol::protocol_version) +
                        ", the client " + std::to_string((*hello)->version()) + "; update the older one",
                    ""});
    close("another protocol version");
    return;
  }
  if (auto admitted = host_.admit(*this); !admitted) {
    answer_failure(message.request, admitted.error());
    close("no place for another connection of its user");
    return;
  }
  has_place_ = true;
  greeted_ = true;
  loop_.cancel(*std::exchange(end_timer_, std::nullopt));
  socket_.set_body_bytes_max(greeted_bytes_max);
  host_.no_stranger(*this);
  answer(protocol::MessageType::welcome, message.request, host_.welcome());
}

void Connection::dispatch(protocol::Message message) {
  if (!greeted_) {
    if (greeting_) {
      greet_remote(message);
    } else {
      greet(message);
    }
    return;
  }
  if (message.type == protocol::MessageType::none) {
    close("malformed header");
    return;
  }
  if (message.request != 0 && ++under_way_ > requests_under_way_max) {
    answer_failure(message.request, {ErrorCode::busy,
                                     "this client has " + std::to_string(requests_under_way_max) +
                                         " requests under way, as many as it may; wait for answers first",
                                     ""});
    close("too many requests under way");
    return;
  }
  if (is_remote() && !pass_remote(message)) return;
  if (!session_) session_ = host_.make_session(*this, message.type);
  session_->handle(std::move(message));
}

}  // namespace forebay::server
