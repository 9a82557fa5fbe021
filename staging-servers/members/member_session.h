// SPDX-License-Identifier: Apache-2.0
// A client's connection to a member: it shows permits of the home, and gets descriptors, a window to write to, or
// bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "fabric/permit.h"
#include "loop/connection.h"
#include "members/member_share.h"

namespace forebay::server {

/// What sessions for segments ask of their server.
class MemberHost {
 public:
  virtual ~MemberHost() = default;
  /// The share of this reservation on this server; null if there is none, or if it is the home.
  virtual MemberShare* find_share(const std::string& reservation_id) = 0;
  /// Null if this server belongs to no pool.
  virtual const fabric::TokenKey* pool_key() const = 0;
  virtual std::uint64_t storage_incarnation() const = 0;
  virtual std::uint64_t server_run() const = 0;
};

class MemberSession final : public Session {
 public:
  MemberSession(Connection& connection, MemberHost& host) : connection_(connection), host_(host) {}
  ~MemberSession() override;

  void handle(protocol::Message message) override;
  void closed(const std::string& reason) override;
  /// Ends the connection.
  void end(const std::string& why);
  void share_gone();
  /// Null if it writes nothing over the network.
  std::shared_ptr<fabric::WriteWindow> window() const { return window_; }

 private:
  Result<void> answer(const protocol::Message& message);
  Result<void> open(const protocol::Message& message);
  Result<void> open_to_write(const fabric::Permit& permit, std::vector<std::uint32_t>& segments,
                             std::vector<Descriptor>& descriptors);
  Result<void> send_segments(const protocol::Message& message);
  Result<void> send_bytes(const protocol::Message& message);
  Result<fabric::Transfer> transfer_of(const wire::BytesGetT& asked);
  /// Its permit lets it read.
  Result<void> check_reads() const;

  Connection& connection_;
  MemberHost& host_;
  MemberShare* share_ = nullptr;
  std::optional<fabric::Permit> permit_;  ///< the first
  /// Outlives the connection's use of it: a write may be under way still.
  std::shared_ptr<fabric::WriteWindow> window_;
};

/// The home of reservations that have shares here.
class HomeSession final : public Session {
 public:
  HomeSession(Connection& connection, MemberHost& host) : connection_(connection), host_(host) {}

  void handle(protocol::Message message) override;
  void closed(const std::string&) override {}

 private:
  Result<void> answer(const protocol::Message& message);
  Result<void> look(const protocol::Message& message);
  Result<MemberShare*> share(const std::string& reservation);

  Connection& connection_;
  MemberHost& host_;
};

}  // namespace forebay::server
