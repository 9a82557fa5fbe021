// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/server/members/fake_member.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "fabric/handshake.h"

namespace forebay::testing {

using protocol::MessageType;

namespace {

constexpr int look_again_ms = 20;

template <class Table>
void send(protocol::MessageSocket& socket, MessageType type, std::uint32_t request, const Table& table) {
  const auto packed = protocol::pack(table);
  (void)socket.send(type, request, {packed.data(), packed.size()});
}

}  // namespace

FakeMember::FakeMember(const fabric::TokenKey& key, std::string uuid)
    : key_(key), uuid_(std::move(uuid)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener_.get(), place, length), 0);
  EXPECT_EQ(::listen(listener_.get(), 16), 0);
  EXPECT_EQ(::getsockname(listener_.get(), place, &length), 0);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  acceptor_ = std::thread([this] { accept(); });
}

FakeMember::~FakeMember() {
  ending_ = true;
  acceptor_.join();
  for (std::thread& connection : connections_) connection.join();
}

void FakeMember::on(MessageType type, Handler handler) {
  const std::lock_guard lock(mutex_);
  handlers_.insert_or_assign(type, std::move(handler));
}

void FakeMember::accept() {
  while (!ending_) {
    pollfd entry{listener_.get(), POLLIN, 0};
    if (::poll(&entry, 1, look_again_ms) <= 0) continue;
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) continue;
    connections_.emplace_back(
        [this, held = std::make_shared<Descriptor>(std::move(socket))] { serve(std::move(*held)); });
  }
}

std::unique_ptr<protocol::Message> FakeMember::next(protocol::MessageSocket& socket) {
  while (!ending_) {
    if (auto message = socket.pop()) return std::make_unique<protocol::Message>(std::move(*message));
    pollfd entry{socket.descriptor(), POLLIN, 0};
    if (::poll(&entry, 1, look_again_ms) <= 0) continue;
    if (!socket.receive()) return nullptr;
  }
  return nullptr;
}

bool FakeMember::greet(protocol::MessageSocket& socket) {
  const auto hello = next(socket);
  if (!hello) return false;
  const auto said = protocol::body_of<wire::RemoteHello>(*hello);
  if (!said) return false;
  const auto claims = std::as_bytes(std::span((*said)->claims()->data(), (*said)->claims()->size()));
  fabric::Nonce theirs{};
  std::ranges::copy(*(*said)->nonce(), theirs.begin());
  const fabric::Nonce mine = fabric::draw_nonce();
  const fabric::Agreement agreement(key_.secret_of(claims), claims, theirs, mine, fabric::ControlEncryption::on);
  wire::RemoteChallengeT challenge;
  challenge.nonce.assign(mine.begin(), mine.end());
  const fabric::Proof proof = agreement.server_proof();
  challenge.proof.assign(proof.begin(), proof.end());
  challenge.encrypted = true;
  send(socket, MessageType::remote_challenge, hello->request, challenge);
  const auto proved = next(socket);
  if (!proved) return false;
  socket.encrypt(agreement.server_cipher());
  wire::WelcomeT welcome;
  welcome.root_uuid = uuid_;
  send(socket, MessageType::welcome, proved->request, welcome);
  return true;
}

void FakeMember::serve(Descriptor descriptor) {
  protocol::MessageSocket socket(std::move(descriptor));
  if (!greet(socket)) return;
  while (const auto message = next(socket)) {
    Handler handler;
    {
      const std::lock_guard lock(mutex_);
      const auto found = handlers_.find(message->type);
      if (found == handlers_.end()) return;
      handler = found->second;
    }
    const Answer answer = handler(*message);
    (void)socket.send(answer.type, message->request, answer.body);
  }
}

}  // namespace forebay::testing
