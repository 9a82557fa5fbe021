// SPDX-License-Identifier: Apache-2.0
// Opening what others may rename meanwhile: below a directory that is open, through no link and, if asked for, no
// mount.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/descriptor.h"

namespace forebay {

/// Whether what is mounted below may be entered.
enum class Mounts : std::uint8_t { crossed, refused };

/// Which file it is, whatever its name.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileIdentity&) const = default;
  static FileIdentity of(const struct stat& status) { return {status.st_dev, status.st_ino}; }
};

/// Opens `path` below `directory` with `flags`, through no link, no `..` and, if they are refused, no mount: what is
/// mounted there is not asked. Never waits for a FIFO or a lease. Not valid: errno says why (ELOOP: a link, EXDEV: a
/// mount or `..`).
Descriptor open_below(int directory, const std::string& path, int flags, Mounts mounts);

/// Whether this process may use openat2: neither the kernel nor a filter refused it so far.
bool uses_openat2() noexcept;

/// Which mount a descriptor lies on, without asking its file system; nothing if it cannot be told.
std::optional<std::uint64_t> mount_of(int descriptor);

/// False, too, if that cannot be told.
bool on_same_mount(int left, int right);

}  // namespace forebay
