// SPDX-License-Identifier: Apache-2.0
// TCP sockets that notice when the other node is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <forebay/result.h>

#include "base/clock.h"
#include "base/descriptor.h"

namespace forebay::fabric {

/// Asked about every 100 ms while something is waited for; its error ends the wait.
using KeepWaiting = std::function<Result<void>()>;

/// A connected socket, non-blocking and close-on-exec. Errors: not_found (no such host), disconnected (nobody listens),
/// timeout.
Result<Descriptor> connect_tcp(const std::string& host, const std::string& port, Deadline deadline,
                               const KeepWaiting& keep_waiting);
/// A listening socket, non-blocking and close-on-exec. `host` is one of this node's names or addresses.
Result<Descriptor> listen_tcp(const std::string& host, const std::string& port);
/// No delay for small messages, and an end within half a minute when the other node does not answer.
void prepare_tcp(int socket) noexcept;
/// "192.0.2.1:41234" of the other end; "unknown" if it is gone.
std::string peer_text(int socket);
/// What of the peer's address one client cannot choose: all of IPv4's, the first 64 bits of IPv6's; without the port.
std::string peer_network(int socket);

}  // namespace forebay::fabric
