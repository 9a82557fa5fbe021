// SPDX-License-Identifier: Apache-2.0
// Finding the instance's server, first and again after it has gone: attempts with growing pauses until a deadline.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client/connection/connection.h"

namespace forebay::client {

/// For an open that the server answers within `timeout_ms` (< 0: whenever): a little more than that.
Deadline open_deadline(std::int64_t timeout_ms);

/// Connects to the instance's server once.
Result<std::shared_ptr<Connection>> connect_server(const ServerPlace& place, const InterruptHook& interrupt);

/// What is said first on a connection that has come back.
using Resume = std::function<Result<void>(const std::shared_ptr<Connection>&)>;

/// Connects to where the server was, then to where its instance says it is now, until `resume` succeeds on a connection
/// that does not break meanwhile. Gives up at the deadline with disconnected, or with any other error of `resume` at
/// once.
Result<std::shared_ptr<Connection>> reconnect_server(const ServerPlace& last_place, Deadline deadline,
                                                     const InterruptHook& interrupt, const Resume& resume);

}  // namespace forebay::client
