// SPDX-License-Identifier: Apache-2.0
// Servers of a pool, as their clients find them: by a reservation's name, and by an introduction of the client's own
// server. See docs/design/many-servers.md.
#pragma once

#include <forebay/address.h>
#include <forebay/writer.h>

#include "base/clock.h"
#include "fabric/token.h"

namespace forebay::client {

/// What the client shows to `server` ("HOST:PORT"). Asked for anew at each connection.
Result<fabric::Token> introduced(const PoolIntroduction& introduction, const std::string& server, Deadline deadline,
                                 const InterruptHook& interrupt);

/// The server that the address means: that of the address or `given` or the environment (ServerPlace::of), or another
/// one of its pool that has the reservation.
Result<ServerPlace> home_of(const Address& address, const std::optional<ServerPlace>& given,
                            const InterruptHook& interrupt);

}  // namespace forebay::client
