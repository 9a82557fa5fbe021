// SPDX-License-Identifier: Apache-2.0
// Names and addresses as users write them, and where the server of an instance is found.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/result.h>
#include <forebay/types.h>

namespace forebay {

/// True if `name` matches [A-Za-z][A-Za-z0-9_.-]{0,63}.
bool is_valid_name(std::string_view name) noexcept;

/// Parses `forebay://RES/STREAM`, `forebay://HOST:PORT/RES/STREAM` (the colon tells), `RES/STREAM` and
/// `RES/STREAM@STEP`. `files` is not a stream's name.
Result<Address> parse_address(std::string_view text);

/// True if `text` can be meant as an address: it starts with forebay:// or has exactly one slash between valid names.
bool looks_like_address(std::string_view text) noexcept;

/// The instance's root: $FOREBAY_ROOT, else /var/lib/forebay for root, else $XDG_STATE_HOME/forebay or
/// ~/.local/state/forebay.
std::string instance_root();

/// The server's socket: $FOREBAY_SOCKET, else what ROOT/endpoint says. not_found if no server was ever started there.
Result<std::string> server_socket();

struct ServerPlace;

/// What a client asks its own server, to be let in by another one of the same pool.
struct PoolIntroduction {
  std::shared_ptr<const ServerPlace> by;  ///< the server that knows the client
  std::string reservation;                ///< the only one that is meant; empty: none, but the server
  std::string reservation_id;             ///< uuid, when it was found: later another one may have the name
  bool administrator = false;
  std::string by_root;  ///< uuid of the root of a server of this node; empty: it is on another one
};

/// What another server has said of a client, as it is shown; for one connection.
struct ShownClaims {
  std::vector<std::byte> claims;
  std::array<std::uint8_t, 32> secret{};
};

/// A server on another node.
struct RemoteServer {
  std::string host;
  std::string port;
  std::string token_file;  ///< what the client shows; read at each connection, so that it can be renewed
  std::optional<PoolIntroduction> introduction;  ///< in place of a token
  std::shared_ptr<const ShownClaims> shown;      ///< likewise: a reservation's home has sent the client here
  bool by_munge = false;                         ///< in place of a token, MUNGE says who the client is
  bool settled = false;                          ///< it is known to be on another node, or to be reached as if it were

  /// "HOST:PORT".
  std::string text() const;
};

/// The port of servers that are named without one (`HOST:`).
inline constexpr std::string_view default_port = "7460";

/// Splits "HOST:PORT", "HOST:" and "[ADDRESS]:PORT".
Result<RemoteServer> parse_server(std::string_view text);

/// Which instance a client belongs to: settled when it is opened. What the environment says later does not count, or a
/// client whose server is away for a moment would go on with another instance's.
struct ServerPlace {
  std::string socket_path;
  std::string root;  ///< of the instance, absolute; empty: the server is nowhere but at socket_path
  std::optional<RemoteServer> remote = {};  ///< reached over TCP instead

  /// `socket_path` if it names one, else the server of $FOREBAY_SERVER, else what server_socket() says now.
  static Result<ServerPlace> find(std::string_view socket_path = {});
  /// The instance below `root`, whatever the environment says. not_found if no server was ever started there.
  static Result<ServerPlace> of_root(std::string_view root);

  /// A server on another node. `token_file` empty: $FOREBAY_TOKEN_FILE; if that is not set, MUNGE says who the client
  /// is. permission_denied if it is not installed.
  static Result<ServerPlace> at_server(std::string_view server, std::string_view token_file = {});
  /// The server that the address names, else `given`, else what find() says.
  static Result<ServerPlace> of(const Address& address, const std::optional<ServerPlace>& given);

  /// Where it is, for messages.
  std::string text() const { return remote ? remote->text() : socket_path; }
  /// The same instance's: a server that was started anew may listen elsewhere.
  ServerPlace now() const;
};

}  // namespace forebay
