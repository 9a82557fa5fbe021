// SPDX-License-Identifier: Apache-2.0
// Needs nothing but the C library: programs that link no more compile it, too.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <forebay/unix_socket.h>

namespace forebay {
namespace {

using Call = int (*)(int, const sockaddr*, socklen_t);

int call_at(Call call, int socket, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return call(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

int call_at_any(Call call, int socket, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (path.size() < sizeof sockaddr_un{}.sun_path || slash == std::string::npos) return call_at(call, socket, path);
  const std::string parent = slash == 0 ? "/" : path.substr(0, slash);
  const int folder = ::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return -1;
  const int result = call_at(call, socket, "/proc/self/fd/" + std::to_string(folder) + path.substr(slash));
  const int error = errno;
  ::close(folder);
  errno = error;
  return result;
}

}  // namespace

int connect_unix(int socket, const std::string& path) {
  return call_at_any(&::connect, socket, path);
}

int bind_unix(int socket, const std::string& path) {
  return call_at_any(&::bind, socket, path);
}

}  // namespace forebay
