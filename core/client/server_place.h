// SPDX-License-Identifier: Apache-2.0
// Which instance a client belongs to: settled when it is opened. What the environment says later does not count, or a
// client whose server is away for a moment would go on with another instance's.
#pragma once

#include <string>
#include <string_view>

#include <forebay/result.h>

namespace forebay::client {

struct ServerPlace {
  std::string socket_path;
  std::string root;  // of the instance, absolute; empty: the server is nowhere but at socket_path

  /// `socket_path` if it names one, else $FOREBAY_SOCKET, else what the instance's root says (forebay/address.h).
  static Result<ServerPlace> find(std::string_view socket_path = {});

  /// The same instance's: a server that was started anew may listen elsewhere.
  ServerPlace now() const;
};

}  // namespace forebay::client
