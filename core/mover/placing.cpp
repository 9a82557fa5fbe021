// SPDX-License-Identifier: Apache-2.0
#include "mover/placing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/descriptor.h"
#include "base/file_system_user.h"
#include "base/open_below.h"
#include "base/system_error.h"

namespace forebay::mover {
namespace {

constexpr const char* action = "cannot give it its name";

Result<void> rename_failure(int number, const std::string& where) {
  if (number == EEXIST || number == ENOTEMPTY || number == ENOTDIR || number == EISDIR)
    return fail(ErrorCode::already_exists,
                "something came to have this name while the stage ran; run the same command again", where);
  return system_error(number, action, where);
}

}  // namespace

Result<void> place_new(int from_directory, const std::string& from, int to_directory, const std::string& to,
                       EntryKind kind, const std::string& where) {
  if (::renameat2(from_directory, from.c_str(), to_directory, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  // Old kernels, file systems without the flag, and filters.
  if (errno != EINVAL && errno != ENOSYS && errno != EPERM && errno != EOPNOTSUPP) return rename_failure(errno, where);
  if (kind == EntryKind::directory) {
    // It replaces at most an empty folder.
    if (::renameat(from_directory, from.c_str(), to_directory, to.c_str()) == 0) return {};
    return rename_failure(errno, where);
  }
  if (::linkat(from_directory, from.c_str(), to_directory, to.c_str(), 0) == 0) {
    if (::unlinkat(from_directory, from.c_str(), 0) == 0) return {};
    return system_error(errno, action, where);
  }
  if (errno != EPERM && errno != EOPNOTSUPP && errno != EMLINK && errno != ENOSYS) return rename_failure(errno, where);
  // A file system without hard links and without the flag (VFAT on an old kernel): nothing else is left. What came
  // there this moment would be replaced.
  if (::faccessat(to_directory, to.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return rename_failure(EEXIST, where);
  return place_over(from_directory, from, to_directory, to, where);
}

Result<void> place_over(int from_directory, const std::string& from, int to_directory, const std::string& to,
                        const std::string& where) {
  if (::renameat(from_directory, from.c_str(), to_directory, to.c_str()) != 0) return rename_failure(errno, where);
  return {};
}

Result<void> place_instead(int from_directory, const std::string& from, int to_directory, const std::string& to,
                           EntryKind kind, bool was_directory, const std::string& where) {
  if (was_directory) {
    // One without its owner's right to write cannot be moved to another parent.
    struct stat there{};
    if (::fstatat(to_directory, to.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(there.st_mode) &&
        there.st_uid == acting_user() && (there.st_mode & 0200) == 0) {
      const Descriptor older = open_below(to_directory, to, O_RDONLY | O_DIRECTORY, Mounts::crossed);
      if (older.valid()) (void)::fchmod(older.get(), (there.st_mode & 07777) | 0700);
    }
  }
  if (::renameat2(from_directory, from.c_str(), to_directory, to.c_str(), RENAME_EXCHANGE) == 0) return {};
  // Somebody removed it meanwhile.
  if (errno == ENOENT) return place_new(from_directory, from, to_directory, to, kind, where);
  if (errno != EINVAL && errno != ENOSYS && errno != EPERM && errno != EOPNOTSUPP) return rename_failure(errno, where);
  if (!was_directory && kind != EntryKind::directory) return place_over(from_directory, from, to_directory, to, where);
  const std::string aside = from + ".replaced";
  if (::renameat(to_directory, to.c_str(), from_directory, aside.c_str()) != 0 && errno != ENOENT)
    return rename_failure(errno, where);
  auto placed = place_new(from_directory, from, to_directory, to, kind, where);
  // Rather the older one than none.
  if (!placed) (void)::renameat(from_directory, aside.c_str(), to_directory, to.c_str());
  return placed;
}

}  // namespace forebay::mover
