// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::fabric {
namespace {

constexpr int keepalive_idle_seconds = 10;
constexpr int keepalive_interval_seconds = 5;
constexpr int keepalive_probes = 3;
constexpr int user_timeout_ms = 25'000;
constexpr std::int64_t connect_slice_ms = 100;
constexpr int backlog = 128;

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> addresses_of(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error == 0) return Addresses(list);
  const std::string place = host + ":" + port;
  if (error == EAI_AGAIN) return fail(ErrorCode::disconnected, "the host's name cannot be looked up now", place);
  return fail(ErrorCode::not_found, std::string("no such host: ") + ::gai_strerror(error), place);
}

void set(int socket, int level, int option, int value) noexcept {
  // Where a kernel lacks one, the application's own heartbeat is left.
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

Result<Descriptor> connect_to(const addrinfo& address, const std::string& place, Deadline deadline,
                              const KeepWaiting& keep_waiting) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return system_error(errno, "cannot make a socket");
  prepare_tcp(socket.get());
  int error = ::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  while (error == EINPROGRESS || error == EINTR) {
    const std::int64_t timeout_ms = deadline.remaining_ms(connect_slice_ms);
    if (timeout_ms == 0) return fail(ErrorCode::timeout, "the server's node does not answer", place);
    pollfd writable{socket.get(), POLLOUT, 0};
    if (::poll(&writable, 1, static_cast<int>(timeout_ms)) > 0) {
      socklen_t length = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      break;
    }
    RETURN_IF_ERROR(keep_waiting());
  }
  if (error == 0) return socket;
  if (error == ECONNREFUSED) {
    return fail(ErrorCode::disconnected,
                "no Forebay server listens there; start it with `forebay up --listen HOST:PORT`", place);
  }
  return fail(ErrorCode::disconnected, system_error(error, "cannot connect to the Forebay server").value().what, place);
}

}  // namespace

void prepare_tcp(int socket) noexcept {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, keepalive_probes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms);
}

Result<Descriptor> connect_tcp(const std::string& host, const std::string& port, Deadline deadline,
                               const KeepWaiting& keep_waiting) {
  ASSIGN_OR_RETURN(const auto addresses, addresses_of(host, port, AI_ADDRCONFIG));
  Result<Descriptor> socket = fail(ErrorCode::not_found, "the host has no address", host + ":" + port);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    socket = connect_to(*address, host + ":" + port, deadline, keep_waiting);
    if (socket || socket.error().code == ErrorCode::cancelled) break;
  }
  return socket;
}

Result<Descriptor> listen_tcp(const std::string& host, const std::string& port) {
  const std::string place = host + ":" + port;
  ASSIGN_OR_RETURN(const auto addresses, addresses_of(host, port, AI_PASSIVE));
  const addrinfo& address = *addresses;
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return system_error(errno, "cannot make a socket");
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0)
    return system_error(errno, "cannot listen for remote clients there; name an address of this node and a free port",
                        place);
  if (::listen(socket.get(), backlog) != 0) return system_error(errno, "cannot listen for remote clients", place);
  return socket;
}

std::string peer_text(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return std::string(host) + ":" + port;
}

std::string peer_network(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
  if (address.ss_family == AF_INET6) {
    in6_addr network = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(&network)) std::fill(network.s6_addr + 8, network.s6_addr + 16, std::uint8_t{0});
    char text[INET6_ADDRSTRLEN];
    return ::inet_ntop(AF_INET6, &network, text, sizeof text) != nullptr ? text : "unknown";
  }
  char host[NI_MAXHOST];
  const bool named =
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0;
  return named ? host : "unknown";
}

}  // namespace forebay::fabric
