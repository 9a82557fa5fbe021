// SPDX-License-Identifier: Apache-2.0
// The pool of servers that this one belongs to: its key, and where the pool's reservations lie. See
// docs/design/many-servers.md.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "base/device.h"
#include "fabric/token.h"
#include "loop/connection.h"
#include "loop/worker.h"
#include "members/member_link.h"

namespace forebay::server {

/// Of a server that belongs to none, it knows nobody and is asked for nothing.
class ServerPool final : public MemberPool {
 public:
  /// `errands` write to the root.
  ServerPool(Device& device, std::string root, Worker& errands)
      : device_(device), root_(std::move(root)), errands_(errands) {}

  /// Reads the key, and what was known before a restart. permission_denied for a key that others may read.
  Result<void> join(const std::string& key_path);
  bool joined() const noexcept { return key_.has_value(); }

  /// Which server has it, and what the peer is to show there. `is_own`: this one has a reservation of this name.
  Result<wire::HomeAnswerT> home(const Peer& peer, const wire::HomeQueryT& query, bool is_own) const;
  /// From now on; written down in the root, so that names are known after a restart without the manager.
  Result<void> learn(const wire::PoolDirectoryT& directory);

  /// What another server of the pool says of a client, and the secret that belongs to it. Nothing for claims that were
  /// not made with the pool's key.
  std::optional<fabric::Secret> secret_of(const fabric::PoolClaims& claims, std::span<const std::byte> encoded) const;

  // MemberPool
  const PoolServer* find_server(const std::string& uuid) const override;
  bool was_given_up(const std::string& uuid) const override {
    return !servers_.empty() && find_server(uuid) == nullptr;
  }
  const fabric::TokenKey* key() const override { return key_ ? &*key_ : nullptr; }
  fabric::Token own_introduction() const override;
  fabric::Token segments_introduction(std::uint32_t uid, const std::string& reservation_id,
                                      std::int64_t expires_ns) const override;

 private:
  struct Home {
    std::string id;
    std::string server;
  };
  Result<void> take(const wire::PoolDirectoryT& directory);
  /// With their secret, from now on for a day.
  fabric::Token introduction(fabric::PoolClaims claims) const;

  Device& device_;
  const std::string root_;
  Worker& errands_;
  std::optional<fabric::TokenKey> key_;
  std::string manager_;
  std::map<std::string, Home, std::less<>> homes_;          ///< by reservation
  std::map<std::string, PoolServer, std::less<>> servers_;  ///< by their root's uuid
};

}  // namespace forebay::server
