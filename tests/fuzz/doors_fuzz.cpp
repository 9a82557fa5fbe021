// SPDX-License-Identifier: Apache-2.0
// What comes before a client is known, at both doors of a server: the socket of its node and the port for other nodes.
// The input chooses at which door somebody knocks, and what is said there: hellos and proofs that are right, or wrong
// in one place, messages of later, and bytes. Whatever comes: nobody gets in without a proof, the server keeps a few
// kilobytes for each that it does not know, and lets the next honest client in at both doors.
//
// Input: rounds of action (1 byte) and client (1 byte); then the choices of the action.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/handshake.h"
#include "protocol/message_socket.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/stepped_server.h"

namespace forebay::fuzz {
namespace {

using protocol::Message;
using protocol::MessageType;

constexpr int actions_max = 120;
constexpr std::size_t bytes_before_the_proof_max = 8192;

std::uint16_t free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  require(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  require(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

/// Somebody at a door.
struct Client {
  std::optional<protocol::MessageSocket> socket;
  bool remote = false;
  std::unique_ptr<fabric::Agreement> agreement;  ///< once the server has challenged it
  bool plain_hello = false;                      ///< its hello is what an honest client sends
  bool may_come_in = false;                      ///< has sent what lets it in
  bool welcome = false;
};

class Doors {
 public:
  explicit Doors(Choices choices) : port_(free_port()), server_(-1, port_) {
    require(server_.start().has_value());
    Client admin;
    knock(admin, false);
    say_hello(admin);
    exchange(admin);
    require(admin.welcome, "the first client is not let in");
    choices_ = choices;
    wire::ReservationCreateT asked;
    asked.name = "res";
    asked.capacity_bytes = std::uint64_t{8} << 20;
    asked.lifetime = 1;
    send(admin, MessageType::reservation_create, protocol::pack(asked));
    server_.turn();
    server_.settle(1);
    server::Peer peer;
    peer.administrator = true;
    wire::TokenCreateT token;
    token.reservation = "res";
    token.rights = fabric::right_read;
    token.lifetime_s = 3600;
    const auto text = server_.server().create_token(peer, token);
    require(text.has_value(), "no token");
    auto parsed = fabric::parse_token(*text, "the fuzzer");
    require(parsed.has_value());
    token_ = std::move(*parsed);
  }

  void run() {
    for (int i = 0; i < actions_max && !choices_.empty(); ++i) act();
    check();
  }

 private:
  void act() {
    const std::uint8_t action = choices_.byte() % 10;
    Client& client = clients_[choices_.below(clients_.size())];
    switch (action) {
      case 0:
      case 1:
        return knock(client, action == 1);
      case 2:
        return client.remote ? say_remote_hello(client) : say_hello(client);
      case 3:
        return prove(client);
      case 4:
        return say_anything(client);
      case 5:
        return begin_a_message(client);
      case 6:
        return send_bytes(client, choices_.bytes(choices_.byte()));
      case 7:
        client = {};
        return server_.turn();
      default:
        return exchange(client);
    }
  }

  void knock(Client& client, bool remote) {
    client = {};
    Descriptor socket(::socket(remote ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (remote) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port_);
      require(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    } else {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      server_.options().socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
      require(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    }
    client.remote = remote;
    client.socket.emplace(std::move(socket));
    server_.turn();
  }

  template <class Body>
  void send(Client& client, MessageType type, const Body& body) {
    if (!client.socket) return;
    const std::span<const std::uint8_t> bytes{body.data(), body.size()};
    (void)client.socket->send(type, 1, bytes);
    understood();
  }
  static void send_bytes(Client& client, std::span<const std::uint8_t> bytes) {
    if (client.socket)
      (void)::send(client.socket->descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void say_hello(Client& client) {
    wire::HelloT hello;
    hello.version = choices_.near32(protocol::protocol_version);
    hello.program = "fuzz";
    if (!client.remote && hello.version == protocol::protocol_version) client.may_come_in = true;
    send(client, MessageType::hello, protocol::pack(hello));
  }
  void say_remote_hello(Client& client) {
    wire::RemoteHelloT hello;
    hello.version = choices_.near32(protocol::protocol_version);
    const auto* claims = reinterpret_cast<const std::uint8_t*>(token_.claims.data());
    hello.claims.assign(claims, claims + token_.claims.size());
    hello.nonce.assign(nonce_.begin(), nonce_.end());
    // One byte of the claims is another, or some are missing.
    if (choices_.seldom(4)) hello.claims[choices_.below(hello.claims.size())] ^= 1;
    if (choices_.seldom(8)) hello.claims.resize(choices_.below(hello.claims.size()));
    if (choices_.seldom(8)) hello.nonce.resize(choices_.byte());
    client.plain_hello = hello.version == protocol::protocol_version &&
                         std::ranges::equal(hello.claims, std::span(claims, token_.claims.size())) &&
                         std::ranges::equal(hello.nonce, nonce_);
    send(client, MessageType::remote_hello, protocol::pack(hello));
  }
  void prove(Client& client) {
    wire::RemoteProofT proof;
    if (client.agreement) {
      const auto own = client.agreement->client_proof();
      proof.proof.assign(own.begin(), own.end());
    } else {
      proof.proof.assign(32, 0);
    }
    const bool spoilt = choices_.seldom(2);
    if (spoilt) proof.proof[choices_.below(proof.proof.size())] ^= 1;
    const bool right = client.agreement && client.plain_hello && !spoilt;
    if (right) client.may_come_in = true;
    send(client, MessageType::remote_proof, protocol::pack(proof));
    if (right && client.socket) client.socket->encrypt(client.agreement->client_cipher());
  }
  /// A message of any type, with a body of a few bytes, that nobody may send yet.
  void say_anything(Client& client) {
    const auto type = static_cast<MessageType>(choices_.byte());
    const auto body = choices_.bytes(choices_.below(64));
    if (!client.socket || client.welcome || type == MessageType::hello) return;
    send(client, type, std::vector<std::uint8_t>(body.begin(), body.end()));
  }
  void begin_a_message(Client& client) {
    protocol::Header header;
    header.type = choices_.byte();
    header.body_bytes = static_cast<std::uint32_t>(choices_.near(64 << 20));
    header.request = 1;
    const auto bytes = std::as_bytes(std::span(&header, 1));
    send_bytes(client, {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    const std::vector<std::uint8_t> some(4096);
    send_bytes(client, some);
  }

  void exchange(Client& client) {
    server_.turn();
    if (!client.socket) return;
    const bool open = client.socket->receive().has_value();
    while (auto message = client.socket->pop()) learn(client, *message);
    if (!open) client = {};
    const std::size_t strangers = clients_.size() + 2;
    require(server_.server().unread_bytes().held() <= strangers * bytes_before_the_proof_max,
            "the server keeps more for strangers than a few kilobytes");
  }
  void learn(Client& client, const Message& message) {
    require(message.type != MessageType::none, "the server sent a malformed header");
    if (message.type == MessageType::remote_challenge) {
      const auto body = protocol::body_of<wire::RemoteChallenge>(message);
      require(body.has_value() && (*body)->nonce() != nullptr);
      fabric::Nonce servers{};
      require((*body)->nonce()->size() == servers.size());
      std::ranges::copy(*(*body)->nonce(), servers.begin());
      client.agreement = std::make_unique<fabric::Agreement>(
          token_.secret, token_.claims, nonce_, servers,
          (*body)->encrypted() ? fabric::ControlEncryption::on : fabric::ControlEncryption::off);
    }
    if (message.type != MessageType::welcome) return;
    require(client.may_come_in, "the server lets somebody in who has not proved anything");
    client.welcome = true;
  }

  /// Whoever was here before: an honest client comes in at both doors.
  void check() {
    for (const bool remote : {false, true}) {
      Client honest;
      choices_ = Choices({});
      knock(honest, remote);
      if (remote) {
        say_remote_hello(honest);
        exchange(honest);
        require(honest.agreement != nullptr, "an honest client is not challenged");
        prove(honest);
      } else {
        say_hello(honest);
      }
      exchange(honest);
      require(honest.welcome, remote ? "an honest remote client is not let in" : "an honest client is not let in");
    }
    require(!server_.has_problem(), server_.problem());
  }

  Choices choices_{{}};  ///< of a plain, valid client until the first one is let in
  const std::uint16_t port_;
  SteppedServer server_;
  fabric::Token token_;
  const fabric::Nonce nonce_{};
  std::array<Client, 5> clients_;
};

}  // namespace
}  // namespace forebay::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ::signal(SIGPIPE, SIG_IGN);
  forebay::fuzz::Doors(forebay::fuzz::Choices({data, size})).run();
  return 0;
}
