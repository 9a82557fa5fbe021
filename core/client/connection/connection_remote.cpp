// SPDX-License-Identifier: Apache-2.0
// A connection to a server on another node: the proofs that open it, and its data path.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/fail_point.h"
#include "base/munge.h"
#include "base/return_error.h"
#include "base/transport.h"
#include "client/connection/connection.h"
#include "client/connection/pause.h"
#include "client/connection/pool.h"
#include "fabric/data_ticket.h"
#include "fabric/fabric_client_path.h"
#include "fabric/handshake.h"
#include "fabric/libfabric.h"
#include "fabric/tcp_client_path.h"

namespace forebay::client {

using protocol::Message;
using protocol::MessageType;

namespace {

// Nobody needs longer messages before both have proved who they are.
constexpr std::size_t greeting_bytes_max = 4096;
constexpr std::int64_t data_open_timeout_ms = 10'000;
// At the door of a server where many crowd.
constexpr int attempts_max = 10;
constexpr std::int64_t attempt_pause_ms = 10;
constexpr ErrorCode stale_ticket = ErrorCode::permission_denied;
constexpr std::int64_t silence_before_heartbeat_ns = std::int64_t{5} * 1'000'000'000;
constexpr std::int64_t heartbeat_timeout_ms = 10'000;

/// Whose the server is: it alone can read what MUNGE says.
uid_t servers_uid() {
  const char* named = std::getenv("FOREBAY_SERVER_UID");
  uid_t uid = 0;
  if (named != nullptr) std::from_chars(named, named + std::strlen(named), uid);
  return uid;
}

fabric::KeepWaiting interruptible(const InterruptHook& interrupt) {
  return [&interrupt]() -> Result<void> {
    if (interrupt && interrupt()) return fail(ErrorCode::cancelled, "interrupted while waiting for the server");
    return {};
  };
}

std::span<const std::byte> bytes_of(const flatbuffers::Vector<std::uint8_t>* numbers) {
  if (numbers == nullptr) return {};
  return std::as_bytes(std::span(numbers->data(), numbers->size()));
}

std::vector<std::uint8_t> numbers_of(std::span<const std::byte> bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}

}  // namespace

Result<std::shared_ptr<Connection>> Connection::open_remote(const ServerPlace& place, Deadline deadline,
                                                            InterruptHook interrupt) {
  ServerPlace settled = place;
  settled.remote->settled = true;
  std::shared_ptr<Connection> connection;
  for (int attempt = 1; !connection; ++attempt) {
    // Before the server is met: at its door the time is short, for others may crowd there.
    ASSIGN_OR_RETURN(const Shown shown, what_to_show(settled, deadline, interrupt));
    ASSIGN_OR_RETURN(auto socket,
                     fabric::connect_tcp(place.remote->host, place.remote->port, deadline, interruptible(interrupt)));
    std::shared_ptr<Connection> made(new Connection(std::move(socket), settled, interrupt));
    auto proved = made->prove(shown, deadline);
    if (proved) {
      connection = std::move(made);
    } else if (proved.error().code != ErrorCode::disconnected || attempt == attempts_max || deadline.passed()) {
      if (proved.error().where.empty()) proved.error().where = place.text();
      return fail(std::move(proved.error()));
    } else {
      // The server is there, and may have sent this client away for others that came.
      RETURN_IF_ERROR(pause_ms(attempt * attempt_pause_ms, interrupt));
    }
  }
  // Settled at the first connection: what goes on after a restart of the server goes on in the same way.
  if (place.remote->settled) return connection;
  ASSIGN_OR_RETURN(const Transport transport, environment_transport());
  const bool may_be_local = transport == Transport::automatic || transport == Transport::local;
  if (auto local = may_be_local ? connection->on_this_node(deadline) : nullptr) return local;
  if (transport == Transport::local) {
    return fail(ErrorCode::invalid_argument,
                "FOREBAY_TRANSPORT is local, and the server that is named is on another node, or its socket cannot be "
                "reached from here; set FOREBAY_TRANSPORT=auto",
                place.text());
  }
  return connection;
}

std::shared_ptr<Connection> Connection::on_this_node(Deadline deadline) {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  // For another user the server would judge by who runs this, and not by the token.
  if (servers_socket_.empty() || boot_id != servers_boot_id_ || token_uid_ != ::geteuid()) return nullptr;
  auto local = open(ServerPlace{servers_socket_, {}}, deadline, interrupt_);
  if (!local || (*local)->root_uuid_ != root_uuid_) return nullptr;
  return std::move(*local);
}

Result<Connection::Shown> Connection::what_to_show(const ServerPlace& place, Deadline deadline,
                                                   const InterruptHook& interrupt) {
  const RemoteServer& server = *place.remote;
  // Anew each time: a token may have been renewed since.
  Shown shown{{}, fabric::draw_nonce(), ::geteuid()};
  if (server.shown) {
    ASSIGN_OR_RETURN(const auto claims, fabric::decode_pool_claims(server.shown->claims));
    shown.uid = claims.uid;
    shown.token = {server.shown->claims, server.shown->secret};
    return shown;
  }
  if (server.introduction) {
    ASSIGN_OR_RETURN(shown.token, introduced(*server.introduction, place.text(), deadline, interrupt));
    return shown;
  }
  if (server.by_munge) {
    shown.token.secret = fabric::draw_secret();
    const auto credential = munge(fabric::munge_payload(shown.token.secret, shown.nonce), servers_uid());
    if (!credential) {
      return fail(
          credential.error().code,
          credential.error().what +
              ". Or show a token: make one on the server's node with `forebay token user --output FILE`, or for "
              "one reservation with `forebay token create RES --output FILE`, and set FOREBAY_TOKEN_FILE to the "
              "file",
          place.text());
    }
    shown.token.claims = fabric::munge_claims(*credential);
    return shown;
  }
  ASSIGN_OR_RETURN(shown.token, fabric::read_token_file(server.token_file));
  if (fabric::are_pool_claims(shown.token.claims)) {
    ASSIGN_OR_RETURN(const auto claims, fabric::decode_pool_claims(shown.token.claims));
    shown.uid = claims.uid;
  } else {
    ASSIGN_OR_RETURN(const auto claims, fabric::decode_claims(shown.token.claims));
    shown.uid = claims.uid;
  }
  return shown;
}

Result<void> Connection::prove(const Shown& shown, Deadline deadline) {
  const auto& introduction = place_.remote->introduction;
  const auto& [token, nonce, uid] = shown;
  token_uid_ = uid;
  socket_.set_body_bytes_max(greeting_bytes_max);
  wire::RemoteHelloT hello;
  hello.version = protocol::protocol_version;
  hello.program = program_invocation_short_name;
  hello.claims = numbers_of(token.claims);
  hello.nonce.assign(nonce.begin(), nonce.end());
  ASSIGN_OR_RETURN(const auto answer, call(MessageType::remote_hello, hello, MessageType::remote_challenge, deadline));
  ASSIGN_OR_RETURN(const auto challenge, protocol::body_of<wire::RemoteChallenge>(answer));
  fabric::Nonce servers{};
  if (challenge->nonce() == nullptr || challenge->nonce()->size() != servers.size())
    return fail(ErrorCode::protocol, "the server's challenge is malformed");
  std::ranges::copy(*challenge->nonce(), servers.begin());
  // A challenge that somebody changed on its way does not go with the server's proof.
  const auto encryption = challenge->encrypted() ? fabric::ControlEncryption::on : fabric::ControlEncryption::off;
  const fabric::Agreement agreement(token.secret, token.claims, nonce, servers, encryption);
  const auto proof = challenge->proof() == nullptr ? std::span<const std::uint8_t>()
                                                   : std::span(challenge->proof()->data(), challenge->proof()->size());
  if (!fabric::is_same(agreement.server_proof(), proof)) {
    if (introduction || place_.remote->shown)
      return fail(ErrorCode::permission_denied, "the server that was found has not the pool's key");
    if (place_.remote->by_munge)
      return fail(ErrorCode::permission_denied, "the server cannot read what MUNGE says of this client");
    return fail(ErrorCode::permission_denied,
                "server and token do not belong together: the token in " + place_.remote->token_file +
                    " was changed, or was made by another server; make one on the server's node with `forebay token "
                    "create`");
  }
  wire::RemoteProofT mine;
  const fabric::Proof own = agreement.client_proof();
  mine.proof.assign(own.begin(), own.end());
  ASSIGN_OR_RETURN(const auto request, start(MessageType::remote_proof, mine));
  socket_.encrypt(agreement.client_cipher());
  socket_.set_body_bytes_max(protocol::body_bytes_max);
  ASSIGN_OR_RETURN(auto welcome, wait(request, deadline));
  ASSIGN_OR_RETURN(welcome, expect(std::move(welcome), MessageType::welcome));
  return take_welcome(welcome);
}

Result<void> Connection::open_data(bool writes) {
  if (data_ && !data_->is_broken()) return {};
  data_.reset();
  const auto attempt = [&]() -> Result<void> {
    const Deadline deadline = Deadline::after_ms(data_open_timeout_ms);
    ASSIGN_OR_RETURN(const Transport transport, environment_transport());
    const bool by_fabric = transport == Transport::fabric;
    wire::DataOpenT request;
    request.writes = writes;
    ASSIGN_OR_RETURN(const auto answer, call(MessageType::data_open, request, MessageType::data_opened, deadline));
    ASSIGN_OR_RETURN(const auto opened, protocol::body_of<wire::DataOpened>(answer));
    ASSIGN_OR_RETURN(auto socket, fabric::connect_tcp(place_.remote->host, place_.remote->port, deadline,
                                                      interruptible(interrupt_)));
    // A connection for one question; then the socket is the path's.
    Connection greeting(std::move(socket), place_, interrupt_);
    greeting.socket_.set_body_bytes_max(greeting_bytes_max);
    wire::DataHelloT hello;
    hello.version = protocol::protocol_version;
    hello.ticket = numbers_of(bytes_of(opened->ticket()));
    if (by_fabric) hello.ticket.push_back(fabric::by_libfabric);
    RETURN_IF_ERROR(greeting.call(MessageType::data_hello, hello, MessageType::done, deadline));
    if (!by_fabric) {
      data_ = std::make_unique<fabric::TcpClientPath>(greeting.socket_.release());
      return {};
    }
    auto path =
        fabric::FabricClientPath::open(greeting.socket_.release(), fabric::open_libfabric_endpoint, keep_waiting());
    if (!path) {
      if (path.error().where.empty()) path.error().where = place_.text();
      return fail(std::move(path.error()));
    }
    data_ = std::move(*path);
    return {};
  };
  auto made = attempt();
  // A process that was stopped meanwhile finds that the ticket's time is over, or its own.
  const bool too_late = !made && (made.error().code == ErrorCode::timeout || made.error().code == stale_ticket);
  if (too_late && !is_broken()) made = attempt();
  return made;
}

fabric::KeepWaiting Connection::keep_waiting() {
  return [this, last_ns = monotonic_ns()]() mutable -> Result<void> {
    if (interrupt_ && interrupt_()) return fail(ErrorCode::cancelled, "interrupted while waiting for the server");
    if (is_broken()) return fail(ErrorCode::disconnected, "the control connection was lost");
    if (monotonic_ns() - last_ns < silence_before_heartbeat_ns) return {};
    // A disk may be slow; a server that lives answers this.
    RETURN_IF_ERROR(
        call(MessageType::heartbeat, wire::HeartbeatT(), MessageType::done, Deadline::after_ms(heartbeat_timeout_ms)));
    last_ns = monotonic_ns();
    return {};
  };
}

Result<void> Connection::check_data(Result<void> done) {
  // A broken path is a broken connection: what was on its way is not known. One that was only interrupted is made anew.
  if (!done && data_->is_broken() && done.error().code != ErrorCode::cancelled) {
    ::shutdown(socket_.descriptor(), SHUT_RDWR);
    break_with({ErrorCode::disconnected, done.error().what, {}});
  }
  return done;
}

Result<void> Connection::fetch(wire::BytesGetT request, fabric::Incoming incoming) {
  const std::lock_guard lock(data_mutex_);
  RETURN_IF_ERROR(open_data(false));
  request.ticket = ++last_ticket_;
  fail_point("client.data.before_get");
  RETURN_IF_ERROR(tell(MessageType::bytes_get, request));
  return check_data(data_->receive(request.ticket, incoming, keep_waiting()));
}

Result<void> Connection::probe(std::span<std::byte> out) {
  const std::lock_guard lock(data_mutex_);
  RETURN_IF_ERROR(open_data(false));
  wire::ProbeGetT request;
  request.ticket = ++last_ticket_;
  request.bytes = out.size();
  RETURN_IF_ERROR(tell(MessageType::probe_get, request));
  return check_data(data_->receive(request.ticket, fabric::Incoming(out), keep_waiting()));
}

std::string Connection::provider() {
  const std::lock_guard lock(data_mutex_);
  return data_ ? data_->provider() : std::string();
}

Result<void> Connection::store(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::lock_guard lock(data_mutex_);
  RETURN_IF_ERROR(open_data(true));
  fail_point("client.data.before_write");
  return check_data(data_->write(segment, offset, bytes, keep_waiting()));
}

Result<void> Connection::finish_stores() {
  const std::lock_guard lock(data_mutex_);
  if (!data_) return {};
  return check_data(data_->finish_writes(keep_waiting()));
}

}  // namespace forebay::client
