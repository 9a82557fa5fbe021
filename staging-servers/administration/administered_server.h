// SPDX-License-Identifier: Apache-2.0
// What administrators' requests and audits ask of the server. The server stands above and implements it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <forebay/admin.h>
#include <forebay/protocol/messages_generated.h>

#include "loop/worker.h"
#include "reservations/reservation_table.h"

namespace forebay::server {

struct StreamServices;

class AdministeredServer {
 public:
  virtual ~AdministeredServer() = default;
  virtual ServerInfo info() const = 0;
  /// What was found and set aside at start.
  virtual const std::vector<std::string>& start_problems() const = 0;
  /// What its settings leave open that is protected otherwise.
  virtual std::vector<std::string> unprotected() const = 0;
  virtual ReservationTable& reservations() = 0;
  /// What the peer may do there now; none where there is no such reservation.
  virtual AccessRights rights_of(const Peer& peer, const std::string& reservation) = 0;
  /// Shares of this reservation have changed: what uses it without the right ends.
  virtual void rights_changed(const std::string& reservation) = 0;
  /// Loop, disk and store.
  virtual const StreamServices& stream_services() = 0;
  /// A token for this peer, with which it may come from another node.
  virtual Result<std::string> create_token(const Peer& peer, const wire::TokenCreateT& asked) = 0;
  /// Makes a token void, also for connections that are open; it stays so after a restart. Idempotent.
  virtual Result<void> revoke_token(const std::string& token) = 0;
  /// Which server of the pool has a reservation, and what the peer is to show there.
  virtual Result<wire::HomeAnswerT> home(const Peer& peer, const wire::HomeQueryT& query) = 0;
  /// Where the pool's reservations lie, as its manager says.
  virtual Result<void> learn(const wire::PoolDirectoryT& directory) = 0;
  /// Asks the manager of this node for the peer; `answered` is called once, later, unless `wanted` has expired.
  virtual Result<void> call_manager(const Peer& peer, const wire::ManagerCallT& call, std::weak_ptr<const bool> wanted,
                                    std::function<void(Result<wire::ManagerAnswerT>)> answered) = 0;
  /// Of which each reservation gets one; none in a user namespace that has too few groups.
  virtual const std::optional<storage::GroupRange>& files_groups() const = 0;
  /// For what takes long, but syncs: the server's own in order, and what users ask for in turns, user by user.
  virtual Worker& errand_worker() = 0;
  /// For creations and walks over files, which may take very long: several run side by side, in no order.
  virtual Worker& side_worker() = 0;
};

}  // namespace forebay::server
