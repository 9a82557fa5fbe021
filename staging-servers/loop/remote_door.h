// SPDX-License-Identifier: Apache-2.0
// What a client on another node must do before it is accepted: its proof, step by step, and what it may send meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "fabric/handshake.h"
#include "loop/connection.h"

namespace forebay::server {

/// What greetings ask of the server.
class RemoteDoor {
 public:
  virtual ~RemoteDoor() = default;
  virtual fabric::ControlEncryption encryption() const = 0;
  /// How long a client has until it must have proved who it is.
  virtual std::int64_t greeting_ms() const = 0;
  /// Nothing for claims that this server did not make.
  virtual std::optional<fabric::Secret> secret_of(const fabric::TokenClaims& claims,
                                                  std::span<const std::byte> encoded) = 0;
  virtual std::optional<fabric::Secret> secret_of(const fabric::PoolClaims& claims,
                                                  std::span<const std::byte> encoded) = 0;
  /// Who a credential of MUNGE's is of, with all groups, and what it carries. `told` is called later, unless `wanted`
  /// has expired by then.
  using Vouched = std::function<void(Result<Peer> peer, std::vector<std::byte> payload)>;
  virtual void vouch(std::string credential, std::weak_ptr<const bool> wanted, Vouched told) = 0;
  /// permission_denied if the token's reservation is gone, or no longer takes it; busy if as many connections with this
  /// token are here as may. `alive` expires with the connection.
  virtual Result<void> admit(const RemotePeer& peer, const std::weak_ptr<const bool>& alive) = 0;
  /// A ticket for one data path of this connection; an earlier one that was not used is void. busy if there are too
  /// many.
  virtual Result<std::vector<std::uint8_t>> offer_data(Connection& connection, bool writes) = 0;
  /// Gives the socket to the data path that the ticket is for. permission_denied for a ticket that is not valid.
  virtual Result<void> check_ticket(std::span<const std::uint8_t> ticket) = 0;
  virtual void begin_data(std::span<const std::uint8_t> ticket, Descriptor socket) = 0;
};

/// The rights that a message takes: any one of them does. Nothing for what a remote peer may not say at all.
std::optional<std::uint32_t> rights_for(protocol::MessageType type) noexcept;

/// What a client of another node may also say when it is known as who it is.
bool is_for_identified(protocol::MessageType type) noexcept;
/// All that a client may say which has come for segments alone (fabric::PoolClaims).
bool is_for_segments(protocol::MessageType type) noexcept;
/// What besides only administrators may say: the manager of the pool, and homes of reservations.
bool is_for_administrators(protocol::MessageType type) noexcept;

/// One client's proof. Errors end the conversation.
class RemoteGreeting {
 public:
  RemoteGreeting(RemoteDoor& door, std::string address) : door_(door), address_(std::move(address)) {}

  /// The answer to its RemoteHello: at once, or when MUNGE has said who it is, unless `wanted` has expired by then.
  using Challenged = std::function<void(const Result<wire::RemoteChallengeT>&)>;
  void challenge(const protocol::Message& hello, std::weak_ptr<const bool> wanted, const Challenged& answer);
  /// Who it is, with the cipher of the conversation, once its RemoteProof holds.
  Result<Peer> admit(const protocol::Message& proof);
  /// Null if messages are not encrypted.
  std::unique_ptr<RecordCipher> cipher() const { return agreement_->server_cipher(); }
  /// It has said its hello.
  bool is_challenged() const noexcept { return challenged_; }

 private:
  RemoteDoor& door_;
  const std::string address_;
  wire::RemoteChallengeT agree(const fabric::Secret& secret, std::span<const std::byte> claims,
                               const fabric::Nonce& clients);
  /// Checks what the client shows, and gives the secret that belongs to it.
  Result<fabric::Secret> examine(std::span<const std::byte> claims);
  Result<fabric::Secret> examine_token(std::span<const std::byte> claims);
  Result<fabric::Secret> examine_pool(std::span<const std::byte> claims);

  bool challenged_ = false;
  Peer peer_;  ///< as it says; who it is once it has proved it
  std::optional<fabric::Agreement> agreement_;
};

}  // namespace forebay::server
