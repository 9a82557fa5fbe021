// SPDX-License-Identifier: Apache-2.0
#include "manager_request.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <forebay/unix_socket.h>

#include "base/descriptor.h"
#include "snapshot_file.h"

namespace forebay::slurm {
namespace {

constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;

/// Not valid, with the reason in errno, if there is no connection now.
Descriptor connected(const std::string& root, std::chrono::seconds wait) {
  auto path = read_file(root + "/manager-endpoint", 4096);
  if (!path) return Descriptor();
  while (!path->empty() && (path->back() == '\n' || path->back() == ' ')) path->pop_back();
  Descriptor connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection.valid()) return connection;
  const timeval limit{static_cast<time_t>(wait.count()), 0};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect_unix(connection.get(), *path) == 0) return connection;
  // The file names a socket that its manager has left.
  const int error = errno == ENOENT ? ECONNREFUSED : errno;
  connection = Descriptor();
  errno = error;
  return connection;
}

bool sent(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// All that the manager answers; nothing if the connection broke before the answer was whole.
std::optional<std::string> received(int connection) {
  std::string answer;
  char buffer[65536];
  while (answer.size() < answer_bytes_max) {
    const ssize_t count = ::recv(connection, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) return answer;
    answer.append(buffer, static_cast<std::size_t>(count));
  }
  return std::nullopt;
}

/// Reads an HTTP answer; nothing if it is not whole.
std::optional<ManagerAnswer> parsed(const std::string& bytes) {
  const auto end = bytes.find("\r\n\r\n");
  const auto space = bytes.find(' ');
  if (end == std::string::npos || space > end) return std::nullopt;
  std::string head = bytes.substr(0, end + 2);
  for (char& c : head) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const auto value = [&](const char* name) -> std::optional<long> {
    const auto at = head.find(std::string("\r\n") + name + ":");
    if (at == std::string::npos) return std::nullopt;
    return std::strtol(head.c_str() + at + 3 + std::strlen(name), nullptr, 10);
  };
  const auto length = value("content-length");
  ManagerAnswer answer{static_cast<int>(std::strtol(head.c_str() + space, nullptr, 10)), {}, bytes.substr(end + 4)};
  if (!length || *length < 0 || answer.body.size() != static_cast<std::size_t>(*length)) return std::nullopt;
  if (const auto status = value("x-forebay-exit-status")) answer.exit_status = static_cast<int>(*status);
  return answer;
}

}  // namespace

std::optional<ManagerAnswer> answer_of_manager(const std::string& root, const std::string& request,
                                               std::chrono::seconds wait) {
  const Descriptor connection = connected(root, wait);
  if (!connection.valid()) return std::nullopt;
  std::optional<std::string> bytes;
  if (sent(connection.get(), request)) bytes = received(connection.get());
  auto answer = bytes ? parsed(*bytes) : std::nullopt;
  if (!answer) errno = ECONNRESET;
  return answer;
}

}  // namespace forebay::slurm
