// SPDX-License-Identifier: Apache-2.0
// Access for clients on other nodes: the port, the key that tokens are made with, and the data paths.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/limited_log.h"
#include "daemon/revoked_tokens.h"
#include "daemon/server_pool.h"
#include "fabric/data_server.h"
#include "loop/remote_door.h"
#include "loop/worker.h"
#include "reservations/reservation_table.h"

namespace forebay::server {

/// What clients on other nodes may take. Tests make them smaller.
struct RemoteLimits {
  std::size_t clients = 1024;           ///< connections for control
  std::size_t strangers = 512;          ///< that have said nothing yet, and as many that prove who they are
  std::size_t token_connections = 512;  ///< with one token: half of all, so that one client keeps no other out
  std::size_t data_paths = 512;
  std::size_t token_data_paths = 256;  ///< likewise
  std::size_t fabric_paths = 128;      ///< of the data paths
  std::size_t tickets = 512;           ///< for data paths, that nobody has used yet
  std::int64_t greeting_ms = 10'000;   ///< until the proof
  std::int64_t ticket_ms = 10'000;     ///< until a ticket is used
  std::int64_t silence_ms = fabric::path_silence_ms_max;
};

struct RemoteOptions {
  std::string fabric_provider;  ///< of libfabric, for clients that ask for it; empty: none is offered
  bool encrypts_control = true;
  RemoteLimits limits;
};

class RemoteAccess final : public RemoteDoor {
 public:
  /// `reservations` and `pool` outlive it.
  RemoteAccess(Device& device, std::string root, RemoteOptions options, EventLoop& loop, ReservationTable& reservations,
               const ServerPool& pool);
  ~RemoteAccess() override;

  /// Opens the port at "HOST:PORT"; `accept` is called when clients wait.
  Result<void> listen(const std::string& place, const std::function<void()>& accept);
  /// The socket of a client that waits; invalid if there is none, or no room for one.
  Descriptor accept();
  void stop_listening();

  /// A token for a peer of this node, in text form. invalid_argument, or why the peer may not use the reservation.
  Result<std::string> create_token(const Peer& peer, const wire::TokenCreateT& asked);

  /// See AdministeredServer. What it says. invalid_argument, permission_denied if it is no token of this server's.
  Result<fabric::TokenClaims> revoke_token(const std::string& text);

  // RemoteDoor
  std::int64_t greeting_ms() const override { return options_.limits.greeting_ms; }
  fabric::ControlEncryption encryption() const override {
    return options_.encrypts_control ? fabric::ControlEncryption::on : fabric::ControlEncryption::off;
  }
  std::optional<fabric::Secret> secret_of(const fabric::TokenClaims& claims,
                                          std::span<const std::byte> encoded) override;
  std::optional<fabric::Secret> secret_of(const fabric::PoolClaims& claims,
                                          std::span<const std::byte> encoded) override {
    return pool_.secret_of(claims, encoded);
  }
  void vouch(std::string credential, std::weak_ptr<const bool> wanted, Vouched told) override;
  Result<void> admit(const RemotePeer& peer, const std::weak_ptr<const bool>& alive) override;
  Result<std::vector<std::uint8_t>> offer_data(Connection& connection, bool writes) override;
  Result<void> check_ticket(std::span<const std::uint8_t> asked) override;
  void begin_data(std::span<const std::uint8_t> asked, Descriptor socket) override;

 private:
  struct Offer {
    Connection* connection = nullptr;
    std::weak_ptr<const bool> alive;
    std::uint64_t token = 0;
    uid_t user = 0;
    bool writes = false;
    std::int64_t until_ns = 0;
  };
  /// The key in ROOT/token-key, drawn when it is first needed.
  Result<const fabric::TokenKey*> key();
  /// The list in ROOT/revoked-tokens, read when it is first needed.
  Result<RevokedTokens*> revoked();
  Result<void> check_reservation(const RemotePeer& peer) const;
  /// Data paths with this token, and tickets for some, of all connections but this one.
  std::size_t paths_of_others(const Connection& connection);
  /// May the connection's user have one more of all data paths and tickets?
  bool has_path_for(uid_t user);

  Device& device_;
  const std::string root_;
  const RemoteOptions options_;
  EventLoop& loop_;
  ReservationTable& reservations_;
  const ServerPool& pool_;
  std::optional<fabric::TokenKey> key_;
  std::optional<RevokedTokens> revoked_;
  log::Limited token_lines_;
  log::Limited path_lines_;
  log::Limited accept_failures_;
  Descriptor listener_;
  std::map<std::vector<std::uint8_t>, Offer> offers_;                              ///< by ticket
  std::map<std::uint64_t, std::vector<std::weak_ptr<const bool>>> connections_;    ///< by token, while they last
  std::map<std::uint64_t, std::vector<std::weak_ptr<fabric::ServerPath>>> paths_;  ///< likewise
  std::map<uid_t, std::vector<std::weak_ptr<fabric::ServerPath>>> users_paths_;    ///< the same, by user
  fabric::DataServer data_;
  /// Asks munged, which may take its time. Last, so that its thread ends before what its jobs touch.
  std::unique_ptr<Worker> vouching_;
};

}  // namespace forebay::server
