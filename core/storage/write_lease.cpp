// SPDX-License-Identifier: Apache-2.0
// The lease probe: asks the kernel whether a file is open or mapped for writing anywhere.
#include <fcntl.h>

#include <cerrno>
#include <csignal>

#include "base/descriptor.h"
#include "base/system_error.h"
#include "storage/reservation_store.h"

namespace forebay::storage {

Result<bool> nobody_writes(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return system_error(errno, "cannot open", path);
  // Should somebody open the file for writing while the lease is held, the kernel sends a signal: one that is ignored
  // by default, in place of SIGIO, which would end this process.
  if (::fcntl(file.get(), F_SETSIG, SIGURG) != 0) return system_error(errno, "cannot set the lease's signal", path);
  if (::fcntl(file.get(), F_SETLEASE, F_RDLCK) != 0) {
    if (errno == EAGAIN) return false;
    if (errno == EINVAL) return system_error(EOPNOTSUPP, "the file system has no leases", path);
    return system_error(errno, "cannot take a lease; the server must own the file", path);
  }
  (void)::fcntl(file.get(), F_SETLEASE, F_UNLCK);
  return true;
}

}  // namespace forebay::storage
