// SPDX-License-Identifier: Apache-2.0
#include "fabric/fabric_address.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

namespace forebay::fabric {
namespace {

/// One of IPv4 or IPv6. An IPv4 address that looks like IPv6 becomes what it is.
struct InternetAddress {
  std::string host;
  in_port_t port = 0;  // in network order

  bool operator==(const InternetAddress&) const = default;
};

std::optional<InternetAddress> read_address(const void* bytes, std::size_t length) {
  sockaddr_storage storage{};
  if (length > sizeof storage || length < sizeof(sa_family_t)) return std::nullopt;
  std::memcpy(&storage, bytes, length);
  InternetAddress address;
  if (storage.ss_family == AF_INET && length >= sizeof(sockaddr_in)) {
    length = sizeof(sockaddr_in);
    address.port = reinterpret_cast<const sockaddr_in&>(storage).sin_port;
  } else if (storage.ss_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    length = sizeof(sockaddr_in6);
    address.port = reinterpret_cast<const sockaddr_in6&>(storage).sin6_port;
  } else {
    return std::nullopt;
  }
  char host[NI_MAXHOST];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), static_cast<socklen_t>(length), host, sizeof host,
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  address.host = host;
  constexpr std::string_view mapped = "::ffff:";
  if (address.host.starts_with(mapped) && address.host.find('.') != std::string::npos)
    address.host.erase(0, mapped.size());
  return address;
}

std::optional<InternetAddress> name_of(int socket, bool peer) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if ((peer ? ::getpeername(socket, address, &length) : ::getsockname(socket, address, &length)) != 0)
    return std::nullopt;
  return read_address(&storage, length);
}

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

}  // namespace

std::string own_node(int socket) {
  const auto name = name_of(socket, false);
  return name ? name->host : std::string();
}

std::string peer_node(int socket) {
  const auto name = name_of(socket, true);
  return name ? name->host : std::string();
}

bool is_plausible_address(std::span<const std::byte> address, std::span<const std::byte> own, const std::string& node) {
  if (address.size() != own.size() || address.empty()) return false;
  if (!read_address(own.data(), own.size())) return true;  // a network without such addresses
  const auto internet = read_address(address.data(), address.size());
  return internet && internet->host == node && internet->port != 0;
}

void mark_sockets_close_on_exec(std::span<const std::byte> own, std::span<const std::byte> peer) noexcept {
  try {
    const auto bound = read_address(own.data(), own.size());
    const auto connected = read_address(peer.data(), peer.size());
    const std::unique_ptr<DIR, CloseDirectory> descriptors(::opendir("/proc/self/fd"));
    if (!descriptors) return;
    while (const dirent* entry = ::readdir(descriptors.get())) {
      char* end = nullptr;
      const long number = std::strtol(entry->d_name, &end, 10);
      if (end == entry->d_name || *end != '\0') continue;
      const int socket = static_cast<int>(number);
      const auto name = name_of(socket, false);
      if (!name) continue;
      if ((bound && *name == *bound) || (connected && name_of(socket, true) == connected))
        (void)::fcntl(socket, F_SETFD, FD_CLOEXEC);
    }
  } catch (const std::bad_alloc&) {
    // They stay as libfabric made them.
  }
}

}  // namespace forebay::fabric
