// SPDX-License-Identifier: Apache-2.0
#include "daemon/listening_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <forebay/unix_socket.h>

#include "base/log.h"
#include "base/system_error.h"

namespace forebay::server {

Result<ListeningSocket> ListeningSocket::at(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode))
    return fail(ErrorCode::already_exists, "something that is no socket has the name of the server's socket", path);
  // It gets its name when all may connect: nobody finds one that refuses them, or none where one was.
  const std::size_t name = path.rfind('/') + 1;
  const std::string hidden = path.substr(0, name) + '.' + path.substr(name);
  if (::unlink(hidden.c_str()) != 0 && errno != ENOENT)
    return system_error(errno, "cannot remove an old socket", hidden);
  ListeningSocket made;
  made.descriptor_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.descriptor_.valid()) return system_error(errno, "cannot make a socket");
  if (bind_unix(made.get(), hidden) != 0) {
    if (errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL)
      return fail(ErrorCode::unsupported, "the file system has no sockets", path);
    return system_error(errno, "cannot bind", path);
  }
  if (::lstat(hidden.c_str(), &status) != 0) return system_error(errno, "cannot examine the socket", hidden);
  made.path_ = hidden;
  made.device_ = status.st_dev;
  made.inode_ = status.st_ino;
  // Whoever can reach the server may connect: rights are decided by who the peer is.
  if (::chmod(hidden.c_str(), 0666) != 0)
    return system_error(errno, "cannot give other users access to the socket", hidden);
  if (::listen(made.get(), SOMAXCONN) != 0) return system_error(errno, "cannot listen", path);
  if (::rename(hidden.c_str(), path.c_str()) != 0) return system_error(errno, "cannot name the socket", path);
  made.path_ = path;
  return made;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept {
  *this = std::move(other);
}

ListeningSocket& ListeningSocket::operator=(ListeningSocket&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::exchange(other.path_, std::string());
  descriptor_ = std::move(other.descriptor_);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

ListeningSocket::~ListeningSocket() {
  close();
}

bool ListeningSocket::has_its_name() const {
  struct stat status{};
  return !path_.empty() && ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void ListeningSocket::close() {
  if (has_its_name() && ::unlink(path_.c_str()) != 0 && errno != ENOENT)
    log::warning("the server's socket stays behind: {}",
                 system_error(errno, "cannot remove it", path_).value().message());
  descriptor_.reset();
  path_.clear();
}

}  // namespace forebay::server
