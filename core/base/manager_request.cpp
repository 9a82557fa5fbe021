// SPDX-License-Identifier: Apache-2.0
// Needs nothing but the C library: programs that link no more compile it, too.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include <forebay/manager_request.h>
#include <forebay/unix_socket.h>

#include "base/descriptor.h"

namespace forebay {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;
constexpr milliseconds interrupt_interval{100};  // how soon an interrupt is noticed

/// One connection to the manager. Calls return false with the reason in errno.
class ManagerConnection {
 public:
  explicit ManagerConnection(const std::function<bool()>& interrupted)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), interrupted_(interrupted) {}

  bool connect(const std::string& path, milliseconds wait) {
    if (!socket_.valid()) return false;
    begin(wait);
    while (connect_unix(socket_.get(), path) != 0) {
      // The file names a socket that its manager has left.
      if (errno == ENOENT) errno = ECONNREFUSED;
      if (!goes_on()) return false;
    }
    return true;
  }

  bool send(std::string_view bytes, milliseconds wait) {
    begin(wait);
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0 && !goes_on()) return false;
      if (count <= 0) continue;
      bytes.remove_prefix(static_cast<std::size_t>(count));
      begin(wait);
    }
    return true;
  }

  /// All until the manager closes the connection.
  bool receive(std::string& answer, milliseconds wait) {
    begin(wait);
    char buffer[65536];
    while (answer.size() < answer_bytes_max) {
      const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (count == 0) return true;
      if (count < 0 && !goes_on()) return false;
      if (count < 0) continue;
      answer.append(buffer, static_cast<std::size_t>(count));
      begin(wait);
    }
    errno = EMSGSIZE;
    return false;
  }

 private:
  void begin(milliseconds wait) {
    begun_ = steady_clock::now();
    if (std::exchange(wait_, wait) == wait) return;
    const milliseconds slice = !interrupted_             ? wait
                               : wait == milliseconds{0} ? interrupt_interval
                                                         : std::min(wait, interrupt_interval);
    const timeval limit{slice.count() / 1000, slice.count() % 1000 * 1000};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }

  /// Whether a call that has failed is to be made again: a signal came, or the socket's own limit is over, not ours.
  bool goes_on() {
    if (errno != EINTR && errno != EAGAIN) return false;
    if (interrupted_ && interrupted_()) {
      errno = ECANCELED;
      return false;
    }
    if (wait_ == milliseconds{0} || steady_clock::now() - begun_ < wait_) return true;
    errno = ETIMEDOUT;
    return false;
  }

  const Descriptor socket_;
  const std::function<bool()>& interrupted_;
  milliseconds wait_{-1};
  steady_clock::time_point begun_;
};

/// The path of the manager's socket; nothing with the reason in errno.
std::optional<std::string> manager_socket_path(const std::string& root) {
  const Descriptor file(::open((root + "/manager-endpoint").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  char buffer[4096];
  const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
  if (count < 0) return std::nullopt;
  std::string path(buffer, static_cast<std::size_t>(count));
  while (!path.empty() && (path.back() == '\n' || path.back() == ' ')) path.pop_back();
  return path;
}

std::optional<HttpAnswer> whole_manager_answer(const std::string& bytes) {
  const auto end = bytes.find("\r\n\r\n");
  const auto space = bytes.find(' ');
  if (end == std::string::npos || space > end) return std::nullopt;
  HttpAnswer answer{static_cast<int>(std::strtol(bytes.c_str() + space, nullptr, 10)), bytes.substr(0, end + 2),
                    bytes.substr(end + 4)};
  for (char& c : answer.head) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const auto length = answer.header("content-length");
  if (!length || std::string(*length) != std::to_string(answer.body.size())) return std::nullopt;
  return answer;
}

}  // namespace

std::optional<std::string_view> HttpAnswer::header(std::string_view name) const {
  const std::string begin = "\r\n" + std::string(name) + ":";
  const auto at = head.find(begin);
  if (at == std::string::npos) return std::nullopt;
  std::string_view value = std::string_view(head).substr(at + begin.size());
  value = value.substr(0, value.find("\r\n"));
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

std::optional<int> HttpAnswer::number(std::string_view name) const {
  const auto value = header(name);
  int result = 0;
  if (!value || std::from_chars(value->data(), value->data() + value->size(), result).ec != std::errc()) {
    return std::nullopt;
  }
  return result;
}

std::optional<HttpAnswer> ask_manager(const std::string& root, const std::string& request, ManagerWaits waits,
                                      const std::function<bool()>& interrupted) {
  const auto path = manager_socket_path(root);
  if (!path) return std::nullopt;
  ManagerConnection connection(interrupted);
  if (!connection.connect(*path, waits.connection)) return std::nullopt;
  std::string bytes;
  if (!connection.send(request, waits.part) || !connection.receive(bytes, waits.part)) return std::nullopt;
  auto answer = whole_manager_answer(bytes);
  if (!answer) errno = ECONNRESET;
  return answer;
}

}  // namespace forebay
