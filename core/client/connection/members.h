// SPDX-License-Identifier: Apache-2.0
// The other members of a reservation over several servers, as one reader or writer reaches them: the home says where
// each is and what to show there. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "client/connection/connection.h"

namespace forebay::client {

/// A connection to a member, and what the member has said on it.
struct MemberConnection {
  std::shared_ptr<Connection> connection;
  std::uint64_t storage_incarnation = 0;
  std::uint64_t generation = 0;  ///< differs for each connection to this member
};

class Members {
 public:
  /// One question to the home, asked again where it goes away meanwhile.
  using AskHome = std::function<Result<protocol::Message>(const wire::MemberQueryT&)>;
  explicit Members(AskHome ask, InterruptHook interrupt) : ask_(std::move(ask)), interrupt_(std::move(interrupt)) {}

  /// The connection to a member, made where there is none or where it broke; of a reader, with its permit shown.
  /// unavailable, with the member's name, where it cannot be reached.
  Result<MemberConnection> to(std::uint16_t member);
  /// Shows a permit to write, and returns the connection with the MemberOpened.
  struct Shown {
    MemberConnection at;
    protocol::Message opened;
  };
  Result<Shown> show(std::uint16_t member, std::span<const std::uint8_t> permit);

  /// What this process keeps open as long as it may have something mapped that the member on this node has.
  struct Mapping {
    std::uint64_t number = 0;
    Descriptor presence;
  };
  /// Before a reader maps anything there. no_space where neither home nor member can note it.
  Result<Mapping> begin_mapping(std::uint16_t member);

  /// What the members have let this client do is over: the next use connects anew.
  void drop_connections();

 private:
  Result<MemberConnection> connect(std::uint16_t member);
  static Result<protocol::Message> open(Connection& connection, std::span<const std::uint8_t> permit);

  const AskHome ask_;
  const InterruptHook interrupt_;
  std::mutex mutex_;
  std::map<std::uint16_t, MemberConnection> connections_;  // guarded by mutex_, also while one is made
  std::uint64_t generations_ = 0;                          // likewise
};

}  // namespace forebay::client
