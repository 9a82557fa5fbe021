// SPDX-License-Identifier: Apache-2.0
// The home's connection to the server of another member, on which it asks one thing after another and waits for each
// answer. For a thread that may wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <forebay/result.h>

#include "base/clock.h"
#include "fabric/token.h"
#include "protocol/message_socket.h"

namespace forebay::server {

class MemberCall {
 public:
  /// Connects to HOST:PORT and shows the token. Once `ending` is true nothing is waited for any more. Errors:
  /// disconnected, timeout, cancelled; permission_denied (another key).
  /// refused if the server there has another root: somebody may listen at a port whose server is down, and pass on.
  static Result<std::unique_ptr<MemberCall>> open(const std::string& server, const std::string& uuid,
                                                  const fabric::Token& token, Deadline deadline,
                                                  const std::atomic<bool>& ending);

  /// The answer, or the error of a Failure. Once the connection has ended, is_broken() is true.
  Result<protocol::Message> ask(protocol::MessageType type, std::span<const std::uint8_t> body,
                                protocol::MessageType expected, Deadline deadline);
  bool is_broken() const noexcept { return broken_; }

 private:
  MemberCall(Descriptor socket, const std::atomic<bool>& ending) : socket_(std::move(socket), 0), ending_(ending) {}
  Result<void> prove(const std::string& uuid, const fabric::Token& token, Deadline deadline);
  Result<protocol::Message> wait(std::uint32_t request, Deadline deadline);

  protocol::MessageSocket socket_;
  const std::atomic<bool>& ending_;
  std::uint32_t last_request_ = 0;
  bool broken_ = false;
};

}  // namespace forebay::server
