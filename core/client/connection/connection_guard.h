// SPDX-License-Identifier: Apache-2.0
// What a client does when memory runs out: the call that gets none gives up its connection.
#pragma once

#include <exception>
#include <utility>

namespace forebay::client {

/// Stands first in a public call. Where an exception leaves the call - std::bad_alloc, or one of the caller's own
/// functions - nobody knows how far it came: an answer may be lost, a message half sent, a step delivered that nobody
/// here knows of. So the connection is given up, and the server sees what it sees when a client dies. What was handed
/// out stays as it is: locks and pins do not depend on the connection. `give_up()` needs no memory.
template <class GiveUp>
class ConnectionGuard {
 public:
  explicit ConnectionGuard(GiveUp give_up) noexcept : give_up_(std::move(give_up)) {}
  ~ConnectionGuard() {
    if (std::uncaught_exceptions() > exceptions_before_) give_up_();
  }
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

 private:
  const GiveUp give_up_;
  const int exceptions_before_ = std::uncaught_exceptions();
};

}  // namespace forebay::client
