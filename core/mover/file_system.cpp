// SPDX-License-Identifier: Apache-2.0
#include "mover/file_system.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace forebay::mover {
namespace {

// Magic numbers of linux/magic.h and of file systems outside the kernel's tree.
constexpr std::array<std::uint64_t, 13> distant = {
    0x6969,      // NFS
    0x65735546,  // FUSE
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
    0x517B,      // SMB
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB2
    0x5346414F,  // AFS
    0x00C36400,  // Ceph
    0x01021997,  // 9p
    0x73757245,  // Coda
    0x564C,      // NCP
};

bool syncfs_tells_errors() noexcept {
  static const bool tells = [] {
    utsname system{};
    if (::uname(&system) != 0) return false;
    const std::string_view release(system.release);
    int major = 0;
    int minor = 0;
    const auto first = std::from_chars(release.data(), release.data() + release.size(), major);
    if (first.ec != std::errc() || first.ptr == release.data() + release.size() || *first.ptr != '.') return false;
    if (std::from_chars(first.ptr + 1, release.data() + release.size(), minor).ec != std::errc()) return false;
    return major > 5 || (major == 5 && minor >= 8);
  }();
  return tells;
}

}  // namespace

bool is_local(int descriptor) noexcept {
  struct statfs status{};
  if (::fstatfs(descriptor, &status) != 0) return false;
  const auto type = static_cast<std::uint64_t>(status.f_type) & 0xFFFFFFFF;
  return std::find(distant.begin(), distant.end(), type) == distant.end();
}

bool syncs_whole(int descriptor) noexcept {
  return syncfs_tells_errors() && is_local(descriptor);
}

Writers writers_of(int descriptor, bool local) noexcept {
  // Over a network, "no lease" does not mean that somebody writes. FUSE is not asked.
  if (!local) return Writers::unknown;
  if (::fcntl(descriptor, F_SETLEASE, F_RDLCK) != 0) return errno == EAGAIN ? Writers::some : Writers::unknown;
  (void)::fcntl(descriptor, F_SETLEASE, F_UNLCK);
  return Writers::none;
}

}  // namespace forebay::mover
