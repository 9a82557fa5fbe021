// SPDX-License-Identifier: Apache-2.0
// What homes on this server ask of another server of the pool, in order, by a thread of its own: a server that hangs
// holds up nobody else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <forebay/result.h>

#include "fabric/token.h"
#include "loop/event_loop.h"
#include "loop/worker.h"
#include "members/member_call.h"
#include "protocol/message.h"

namespace forebay::server {

/// A server of the pool.
struct PoolServer {
  std::string name;
  std::string server;  ///< HOST:PORT
};

/// What members need to know of the pool.
class MemberPool {
 public:
  virtual ~MemberPool() = default;
  /// Null if no server of the pool has this root, as far as is known.
  virtual const PoolServer* find_server(const std::string& uuid) const = 0;
  /// The manager has said which servers there are, and it is none of them any more: it was given up.
  virtual bool was_given_up(const std::string& uuid) const = 0;
  /// Null if this server belongs to no pool.
  virtual const fabric::TokenKey* key() const = 0;
  /// What this server shows to another one of the pool, as its administrator.
  virtual fabric::Token own_introduction() const = 0;
  /// What a client shows to a member, for segments of this reservation alone.
  virtual fabric::Token segments_introduction(std::uint32_t uid, const std::string& reservation_id,
                                              std::int64_t expires_ns) const = 0;
};

class MemberLink {
 public:
  /// Both outlive it.
  MemberLink(EventLoop& loop, const MemberPool& pool, std::string uuid)
      : loop_(loop), pool_(pool), uuid_(std::move(uuid)) {}
  ~MemberLink() {
    ending_ = true;
    worker_.end();
  }
  MemberLink(const MemberLink&) = delete;
  MemberLink& operator=(const MemberLink&) = delete;

  /// `told` is called in the loop, later, unless `wanted` has expired by then. disconnected at once after the server
  /// could not be reached just before.
  using Told = std::function<void(Result<protocol::Message>)>;
  template <class Object>
  void ask(protocol::MessageType type, const Object& body, protocol::MessageType expected, std::int64_t timeout_ms,
           std::weak_ptr<const bool> wanted, Told told) {
    ask(type, std::make_shared<flatbuffers::DetachedBuffer>(protocol::pack(body)), expected, timeout_ms,
        std::move(wanted), std::move(told));
  }
  /// The server was started anew: its connection of before has ended, although nobody has noticed yet.
  void renew() { renew_ = true; }
  const std::string& uuid() const noexcept { return uuid_; }
  /// Its name in the pool, for people; its root's uuid if that is not known.
  std::string name() const;

 private:
  void ask(protocol::MessageType type, std::shared_ptr<flatbuffers::DetachedBuffer> body,
           protocol::MessageType expected, std::int64_t timeout_ms, std::weak_ptr<const bool> wanted, Told told);
  Result<protocol::Message> call(const std::optional<PoolServer>& place, const fabric::Token& token,
                                 protocol::MessageType type, std::span<const std::uint8_t> body,
                                 protocol::MessageType expected, std::int64_t timeout_ms);

  EventLoop& loop_;
  const MemberPool& pool_;
  const std::string uuid_;
  // Of the worker's thread:
  std::unique_ptr<MemberCall> call_;
  std::string called_;  ///< HOST:PORT
  std::int64_t failed_ns_ = 0;
  std::optional<Error> failure_;
  std::atomic<bool> ending_ = false;
  std::atomic<bool> renew_ = false;
  Worker worker_;  ///< last: its thread ends before what its jobs touch
};

/// Up to four for each server that has members of reservations whose home is here: what one of them waits for holds up
/// nothing else.
class MemberLinks {
 public:
  enum class Use : std::uint8_t { looks, changes, syncs, checks };
  MemberLinks(EventLoop& loop, const MemberPool& pool) : loop_(loop), pool_(pool) {}
  MemberLink& to(const std::string& uuid, Use use);
  const MemberPool& pool() const noexcept { return pool_; }

 private:
  EventLoop& loop_;
  const MemberPool& pool_;
  std::map<std::pair<std::string, Use>, std::unique_ptr<MemberLink>> links_;
};

}  // namespace forebay::server
