// SPDX-License-Identifier: Apache-2.0
// How a client reaches its server, and how bytes of steps travel: $FOREBAY_TRANSPORT.
#pragma once

#include <cstdint>
#include <string_view>

#include <forebay/result.h>

namespace forebay {

enum class Transport : std::uint8_t {
  automatic,  ///< over TCP to a server that is named and on another node, else on this node
  local,      ///< on this node; a server that is named has to be here
  tcp,        ///< a server that is named, all of it over TCP
  fabric,     ///< a server that is named, bytes of steps by libfabric; refused where it cannot be had
};

/// Takes "auto", "local", "tcp" and "fabric".
Result<Transport> parse_transport(std::string_view text);
/// What the environment says; automatic if that is nothing.
Result<Transport> environment_transport();

}  // namespace forebay
