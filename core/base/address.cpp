// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <forebay/address.h>

#include "base/device.h"
#include "base/munge.h"
#include "base/name_rule.h"
#include "base/plain_text.h"
#include "base/return_error.h"
#include "base/transport.h"

namespace forebay {
namespace {

constexpr std::string_view scheme = "forebay://";
constexpr std::size_t given_bytes_shown_max = 200;

bool is_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Result<std::string> endpoint_of(const std::string& root) {
  auto bytes = read_whole(posix_device(), root + "/endpoint", 4096);
  if (!bytes) {
    if (bytes.error().code == ErrorCode::not_found) {
      return fail(ErrorCode::not_found, "no Forebay server was started for " + root +
                                            "; run `forebay up`, or set FOREBAY_ROOT to the instance's root");
    }
    return fail(std::move(bytes.error()));
  }
  std::string path(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  while (!path.empty() && (path.back() == '\n' || path.back() == ' ')) path.pop_back();
  return path;
}

}  // namespace

bool is_valid_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > name_bytes_max || !is_letter(name.front())) return false;
  for (char c : name) {
    if (!is_letter(c) && !is_digit(c) && c != '_' && c != '.' && c != '-') return false;
  }
  return true;
}

std::string RemoteServer::text() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

Result<RemoteServer> parse_server(std::string_view text) {
  const auto refuse = [&](const char* what) {
    return fail(ErrorCode::invalid_argument,
                "not a server: \"" + std::string(text) + "\"; " + what + ", for example node7:7460");
  };
  RemoteServer server;
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("write HOST:PORT");
  std::string_view host = text.substr(0, colon);
  std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse("write an IPv6 address in brackets, [ADDRESS]:PORT");
  }
  constexpr std::size_t host_bytes_max = 255;
  const auto is_of_host = [](char c) {
    return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  };
  if (host.empty() || host.size() > host_bytes_max || !std::ranges::all_of(host, is_of_host))
    return refuse("write HOST:PORT");
  if (port.empty()) port = default_port;
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number == 0)
    return refuse("a port is a number from 1 to 65535");
  server.host = host;
  server.port = std::to_string(number);
  return server;
}

Result<Address> parse_address(std::string_view text) {
  const std::string given(text);
  Address address;
  if (text.starts_with(scheme)) {
    text.remove_prefix(scheme.size());
    const std::string_view first = text.substr(0, text.find('/'));
    if (first.find(':') != std::string_view::npos) {
      ASSIGN_OR_RETURN(const auto server, parse_server(first));
      address.server = server.text();
      text.remove_prefix(std::min(first.size() + 1, text.size()));
    }
  }
  auto slash = text.find('/');
  std::string in_reservation;
  if (const std::string reservation = environment("FOREBAY_RESERVATION");
      slash == std::string_view::npos && is_valid_name(reservation) && is_valid_name(text.substr(0, text.find('@')))) {
    in_reservation = reservation + "/" + std::string(text);
    text = in_reservation;
    slash = reservation.size();
  }
  if (slash == std::string_view::npos) {
    return fail(ErrorCode::invalid_argument,
                "not a stream's address: \"" + given + "\"; write RESERVATION/STREAM, for example run1/flow");
  }
  address.reservation = text.substr(0, slash);
  std::string_view rest = text.substr(slash + 1);
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    std::uint64_t step = 0;
    const std::string_view number = rest.substr(at + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), step);
    if (error != std::errc() || end != number.data() + number.size()) {
      return fail(ErrorCode::invalid_argument, "not a step number: \"" + std::string(number) + "\" in " + given);
    }
    address.step = step;
    rest = rest.substr(0, at);
  }
  address.stream = rest;
  for (const std::string& name : {address.reservation, address.stream}) {
    if (!is_valid_name(name)) {
      return fail(ErrorCode::invalid_argument, describe_bad_name(name), plain_text(given, given_bytes_shown_max));
    }
  }
  if (address.stream == "files") {
    return fail(ErrorCode::invalid_argument,
                "\"files\" is the reservation's file tree and cannot be a stream's name (" + given + ")");
  }
  return address;
}

bool looks_like_address(std::string_view text) noexcept {
  if (text.starts_with(scheme)) return true;
  const auto slash = text.find('/');
  return slash != std::string_view::npos && is_valid_name(text.substr(0, slash)) &&
         is_valid_name(text.substr(slash + 1));
}

std::string instance_root() {
  if (auto root = environment("FOREBAY_ROOT"); !root.empty()) return root;
  if (::geteuid() == 0) return "/var/lib/forebay";
  if (auto state = environment("XDG_STATE_HOME"); !state.empty()) return state + "/forebay";
  return environment("HOME") + "/.local/state/forebay";
}

Result<std::string> server_socket() {
  if (auto socket = environment("FOREBAY_SOCKET"); !socket.empty()) return socket;
  return endpoint_of(instance_root());
}

Result<ServerPlace> ServerPlace::find(std::string_view socket_path) {
  if (!socket_path.empty()) return ServerPlace{std::string(socket_path), {}};
  if (const auto server = environment("FOREBAY_SERVER"); !server.empty()) return at_server(server);
  ASSIGN_OR_RETURN(const Transport transport, environment_transport());
  if (transport == Transport::tcp || transport == Transport::fabric) {
    return fail(ErrorCode::invalid_argument,
                "FOREBAY_TRANSPORT=" + environment("FOREBAY_TRANSPORT") +
                    " is for servers on other nodes, and none is named; set FOREBAY_SERVER=HOST:PORT");
  }
  if (auto socket = environment("FOREBAY_SOCKET"); !socket.empty()) return ServerPlace{std::move(socket), {}};
  return of_root(instance_root());
}

Result<ServerPlace> ServerPlace::of_root(std::string_view root) {
  ASSIGN_OR_RETURN(auto socket, endpoint_of(std::string(root)));
  ServerPlace place{std::move(socket), {}};
  // The program may go to another directory meanwhile.
  std::error_code error;
  if (const auto absolute = std::filesystem::absolute(root, error); !error) place.root = absolute.string();
  return place;
}

Result<ServerPlace> ServerPlace::at_server(std::string_view server, std::string_view token_file) {
  ServerPlace place;
  ASSIGN_OR_RETURN(place.remote, parse_server(server));
  RETURN_IF_ERROR(environment_transport());
  place.remote->token_file = token_file.empty() ? environment("FOREBAY_TOKEN_FILE") : std::string(token_file);
  place.remote->by_munge = place.remote->token_file.empty();
  if (place.remote->by_munge && !has_munge()) {
    return fail(ErrorCode::permission_denied,
                "a server on another node wants a token: make one there with `forebay token create RES --output FILE`, "
                "or in a pool of servers with `forebay token user --output FILE`, and set FOREBAY_TOKEN_FILE to the "
                "file; or have MUNGE installed on both nodes",
                place.text());
  }
  return place;
}

Result<ServerPlace> ServerPlace::of(const Address& address, const std::optional<ServerPlace>& given) {
  if (!address.server.empty()) {
    const bool has_token = given && given->remote;
    return at_server(address.server, has_token ? given->remote->token_file : std::string());
  }
  return given ? Result<ServerPlace>(*given) : find();
}

ServerPlace ServerPlace::now() const {
  if (root.empty()) return *this;
  auto listens = endpoint_of(root);
  // Where that cannot be read, it is most likely where it was.
  return {listens ? std::move(*listens) : socket_path, root};
}

}  // namespace forebay
