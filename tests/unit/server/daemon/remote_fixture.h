// SPDX-License-Identifier: Apache-2.0
// A server that listens for clients on other nodes, and such clients, which keep to no rule.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/handshake.h"
#include "fabric/tcp_client_path.h"
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {

using protocol::Message;
using protocol::MessageType;

inline constexpr std::int64_t remote_deadline_ms = 30'000;

/// A port that nobody listens at just now.
inline std::string free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return std::to_string(ntohs(address.sin_port));
}

inline Result<void> wait_on() {
  return {};
}

/// What a client says first, with what it needs to go on.
struct Hello {
  fabric::Token token;
  fabric::Nonce nonce = fabric::draw_nonce();

  wire::RemoteHelloT message() const {
    wire::RemoteHelloT hello;
    hello.version = protocol::protocol_version;
    const auto* begin = reinterpret_cast<const std::uint8_t*>(token.claims.data());
    hello.claims.assign(begin, begin + token.claims.size());
    hello.nonce.assign(nonce.begin(), nonce.end());
    return hello;
  }
  fabric::Agreement agreement(const Message& challenge) const {
    const auto body = RawClient::unpack<wire::RemoteChallenge>(challenge);
    return agreement(*body, body->encrypted ? fabric::ControlEncryption::on : fabric::ControlEncryption::off);
  }
  fabric::Agreement agreement(const wire::RemoteChallengeT& challenge, fabric::ControlEncryption encryption) const {
    fabric::Nonce servers{};
    EXPECT_EQ(challenge.nonce.size(), servers.size());
    std::ranges::copy(challenge.nonce, servers.begin());
    return {token.secret, token.claims, nonce, servers, encryption};
  }
};

inline wire::RemoteProofT proof_of(const fabric::Agreement& agreement) {
  wire::RemoteProofT proof;
  const fabric::Proof own = agreement.client_proof();
  proof.proof.assign(own.begin(), own.end());
  return proof;
}

class RemoteTest : public ServerTest {
 protected:
  void SetUp() override {
    port_ = free_port();
    options_.listen = "127.0.0.1:" + port_;
    ServerTest::SetUp();
  }

  RawClient stranger() {
    auto socket = fabric::connect_tcp("127.0.0.1", port_, Deadline::after_ms(remote_deadline_ms), wait_on);
    EXPECT_TRUE(socket);
    return RawClient(std::move(*socket));
  }

  fabric::Token token(std::uint32_t rights, std::uint64_t lifetime_s = 3600) {
    wire::TokenCreateT asked;
    asked.reservation = "res";
    asked.rights = rights;
    asked.lifetime_s = lifetime_s;
    const auto answer = RawClient::unpack<wire::TokenAnswer>(connect().call(MessageType::token_create, asked));
    auto parsed = fabric::parse_token(answer->token, "the test");
    EXPECT_TRUE(parsed);
    return *parsed;
  }

  /// The answer to its proof.
  static Message prove(RawClient& client, const fabric::Token& token) {
    const Hello hello{token};
    const auto agreement = hello.agreement(client.call(MessageType::remote_hello, hello.message()));
    const auto request = client.send(MessageType::remote_proof, proof_of(agreement));
    client.socket().encrypt(agreement.client_cipher());
    return client.answer(request);
  }

  /// A client that has proved that it has this token.
  RawClient admitted(const fabric::Token& token) {
    RawClient client = stranger();
    EXPECT_EQ(prove(client, token).type, MessageType::welcome);
    return client;
  }
  /// The same with a token of its own, of these rights.
  RawClient admitted(std::uint32_t rights) { return admitted(token(rights)); }

  std::vector<std::uint8_t> ticket(RawClient& client, bool writes) {
    wire::DataOpenT asked;
    asked.writes = writes;
    const auto opened = RawClient::unpack<wire::DataOpened>(client.call(MessageType::data_open, asked));
    return opened->ticket;
  }

  fabric::TcpClientPath data_path(RawClient& client, bool writes) {
    RawClient greeting = stranger();
    EXPECT_EQ(greeting.call(MessageType::data_hello, data_hello(ticket(client, writes))).type, MessageType::done);
    return fabric::TcpClientPath(greeting.socket().release());
  }

  static wire::DataHelloT data_hello(std::vector<std::uint8_t> ticket) {
    wire::DataHelloT hello;
    hello.version = protocol::protocol_version;
    hello.ticket = std::move(ticket);
    return hello;
  }

  /// Until the server has noticed that somebody is gone. It notices without being told to.
  template <class Accepted>
  static bool comes_true(Accepted&& accepted) {
    const Deadline deadline = Deadline::after_ms(remote_deadline_ms);
    while (!deadline.passed()) {
      if (accepted()) return true;
    }
    return false;
  }

  std::string port_;
};

}  // namespace forebay::testing
