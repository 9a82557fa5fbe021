// SPDX-License-Identifier: Apache-2.0
// Requests of clients on other nodes to the manager of this node. The manager hears for whom each one is: it believes
// that of administrators, and the server is one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>

#include "loop/connection.h"
#include "loop/event_loop.h"
#include "loop/user_shares.h"

namespace forebay::server {

class ManagerCalls {
 public:
  /// Of one user, at a time.
  static constexpr unsigned of_user_max = 32;

  using Answered = std::function<void(Result<wire::ManagerAnswerT>)>;

  /// `root`: of the instance. `bytes`: what is on its way to the manager and back, by user.
  ManagerCalls(EventLoop& loop, std::string root, ByteShares& bytes);
  ~ManagerCalls();

  /// Begins one. `answered` is called once, later, unless `wanted` has expired by then. invalid_argument for what is no
  /// request; busy if the user has too many under way; disconnected if there is no manager.
  Result<void> begin(const Peer& peer, const wire::ManagerCallT& call, std::weak_ptr<const bool> wanted,
                     Answered answered);

 private:
  struct Call;
  void on_events(Call& call);
  /// Does what can be done without waiting. True once the answer is whole.
  Result<bool> go_on(Call& call);
  void end(Call& call, Result<wire::ManagerAnswerT> answer);
  /// busy if its user holds as much as it may.
  Result<void> count(Call& call);

  EventLoop& loop_;
  const std::string root_;
  ByteShares& bytes_;
  std::map<int, std::unique_ptr<Call>> calls_;  ///< under way, by descriptor
  std::map<uid_t, unsigned> of_users_;          ///< how many, none with 0
};

}  // namespace forebay::server
