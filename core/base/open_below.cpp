// SPDX-License-Identifier: Apache-2.0
#include "base/open_below.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <string_view>
#include <utility>

namespace forebay {
namespace {

constexpr int always = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
constexpr std::size_t path_bytes_max = PATH_MAX - 1;

std::atomic<bool> openat2_refused = false;

Descriptor open_checked(int parent, const std::string& name, int flags, int top, Mounts mounts) {
  if (mounts == Mounts::crossed) return Descriptor(::openat(parent, name.c_str(), flags | always));
  // By path alone first: this asks nothing of what is mounted there.
  Descriptor found(::openat(parent, name.c_str(), O_PATH | (flags & O_DIRECTORY) | always));
  if (!found.valid()) return found;
  if (!on_same_mount(found.get(), top)) {
    errno = EXDEV;
    return {};
  }
  if ((flags & O_PATH) != 0) return found;
  Descriptor opened(::openat(parent, name.c_str(), flags | always));
  // Another one may have the name by now.
  if (opened.valid() && !on_same_mount(opened.get(), top)) {
    opened.reset();
    errno = EXDEV;
  }
  return opened;
}

/// What openat2 does, one component at a time.
Descriptor open_by_components(int directory, std::string_view path, int flags, Mounts mounts) {
  Descriptor parent;
  int at = directory;
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string name(path.substr(0, slash));
    if (name.empty() || name == "..") {
      errno = EXDEV;
      return {};
    }
    if (slash == std::string_view::npos) return open_checked(at, name, flags, directory, mounts);
    Descriptor next = open_checked(at, name, O_PATH | O_DIRECTORY, directory, mounts);
    if (!next.valid()) return {};
    parent = std::move(next);
    at = parent.get();
    path.remove_prefix(slash + 1);
  }
}

Descriptor open_by_openat2(int directory, const char* path, int flags, Mounts mounts) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | always);
  // With O_PATH the kernel takes no flag that means nothing to it.
  if ((flags & O_PATH) != 0) how.flags &= ~static_cast<std::uint64_t>(O_NONBLOCK | O_NOCTTY);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  if (mounts == Mounts::refused) how.resolve |= RESOLVE_NO_XDEV;
  return Descriptor(static_cast<int>(::syscall(SYS_openat2, directory, path, &how, sizeof how)));
}

}  // namespace

bool uses_openat2() noexcept {
  return !openat2_refused.load(std::memory_order_relaxed);
}

std::optional<std::uint64_t> mount_of(int descriptor) {
  const Descriptor info(::open(("/proc/self/fdinfo/" + std::to_string(descriptor)).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer{};
  const ssize_t size = info.valid() ? ::read(info.get(), buffer.data(), buffer.size()) : -1;
  if (size <= 0) return std::nullopt;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  constexpr std::string_view key = "mnt_id:";
  const std::size_t found = text.find(key);
  if (found == std::string_view::npos) return std::nullopt;
  const std::size_t begin = text.find_first_not_of(" \t", found + key.size());
  if (begin == std::string_view::npos) return std::nullopt;
  std::uint64_t mount = 0;
  if (std::from_chars(text.data() + begin, text.data() + text.size(), mount).ec != std::errc()) return std::nullopt;
  return mount;
}

bool on_same_mount(int left, int right) {
  const auto one = mount_of(left);
  return one && one == mount_of(right);
}

Descriptor open_below(int directory, const std::string& path, int flags, Mounts mounts) {
  if (path.size() > path_bytes_max) {
    // The kernel takes no name as long as that: in pieces.
    const std::size_t slash = path.rfind('/', path_bytes_max);
    if (slash == std::string::npos) {
      errno = ENAMETOOLONG;
      return {};
    }
    const Descriptor middle = open_below(directory, path.substr(0, slash), O_PATH | O_DIRECTORY, mounts);
    return middle.valid() ? open_below(middle.get(), path.substr(slash + 1), flags, mounts) : Descriptor();
  }
  if (!uses_openat2()) return open_by_components(directory, path, flags, mounts);
  Descriptor opened = open_by_openat2(directory, path.c_str(), flags, mounts);
  // EAGAIN also says that something was renamed while `..` was looked up, which is not in these paths; else a lease.
  if (opened.valid() || (errno != ENOSYS && errno != EPERM)) return opened;
  const int number = errno;
  // A filter says EPERM to the call; to a name the kernel may say so, too.
  opened = open_by_components(directory, path, flags, mounts);
  if (opened.valid() || number == ENOSYS) openat2_refused = true;
  return opened;
}

}  // namespace forebay
