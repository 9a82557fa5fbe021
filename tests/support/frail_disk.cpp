// SPDX-License-Identifier: Apache-2.0
// Preloaded into a staging server: its root lies on a disk that loses what was not synced, is full, fails, or takes no
// writes, as a test says while the server runs. What the server's clients write by descriptors is on that disk, too:
// it is lost unless the server has synced it.
//
// FOREBAY_FRAIL_DISK=FOLDER names the disk of the root that FOREBAY_FRAIL_ROOT names. FOLDER/mode is one letter, which
// may change at any time: o (sound), f (full), e (fails: every read, write and sync), r (read-only). FOLDER/synced has
// a copy of each file as of its last sync, named after its inode and when that was made; tests/support/frail_disk.py
// takes from it what a loss of power leaves. Names are taken for durable at once.
//
// As in file_changes.cpp, the functions stand in front of the C library's of the same names.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

struct Disk {
  std::string root;
  std::string folder;
  const volatile char* mode;
};

const Disk* disk = nullptr;  // set once, while the process has one thread; null: of no root

bool is_below_root(std::string_view path) {
  const std::string& root = disk->root;
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

std::string path_of(int descriptor) {
  std::array<char, PATH_MAX> text{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), text.data(), text.size());
  return {text.data(), size < 0 ? 0 : static_cast<std::size_t>(size)};
}

bool is_on_disk(int descriptor) {
  return is_below_root(path_of(descriptor));
}
bool is_on_disk(int directory, const char* path) {
  if (*path == '/') return is_below_root(path);
  if (directory != AT_FDCWD) return is_on_disk(directory);
  std::array<char, PATH_MAX> text{};
  return ::getcwd(text.data(), text.size()) != nullptr && is_below_root(text.data());
}

enum class Call { reads, writes, lengthens, syncs, names };

// What the disk says to a call that concerns it; 0: it does as it is told.
int refusal(Call call) {
  switch (disk == nullptr ? 'o' : *disk->mode) {
    case 'f':
      return call == Call::lengthens ? ENOSPC : 0;
    case 'e':
      return call == Call::names ? 0 : EIO;
    case 'r':
      return call == Call::reads || call == Call::syncs ? 0 : EROFS;
    default:
      return 0;
  }
}

template <class... Place>
bool refuses(Call call, Place... place) {
  const int error = refusal(call);
  if (error == 0 || !is_on_disk(place...)) return false;
  errno = error;
  return true;
}

bool is_beyond_end(int descriptor, off_t end) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && end > status.st_size;
}

bool refuses_write(int descriptor, off_t end) {
  if (refusal(Call::writes) != 0) return refuses(Call::writes, descriptor);
  return refusal(Call::lengthens) != 0 && is_beyond_end(descriptor, end) && refuses(Call::lengthens, descriptor);
}

// Keeps the file as it is now. In place of the real sync, whose time depends on what else is written to this machine.
int keep(int descriptor) {
  struct statx status{};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &status) != 0) return -1;
  if (!S_ISREG(status.stx_mode)) return 0;
  static std::atomic<unsigned> copies{0};
  const std::string name = disk->folder + "/synced/" + std::to_string(status.stx_ino) + "-" +
                           std::to_string(status.stx_btime.tv_sec) + "." + std::to_string(status.stx_btime.tv_nsec);
  const std::string made = name + ".new" + std::to_string(++copies);
  const std::string own = "/proc/self/fd/" + std::to_string(descriptor);
  const int from = static_cast<int>(syscall(SYS_openat, AT_FDCWD, own.c_str(), O_RDONLY | O_CLOEXEC));
  const int to =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  ssize_t copied = from < 0 || to < 0 ? -1 : 1;
  while (copied > 0) copied = syscall(SYS_copy_file_range, from, nullptr, to, nullptr, std::size_t{1} << 30, 0);
  if (from >= 0) ::close(from);
  if (to >= 0) ::close(to);
  if (copied < 0) return -1;
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, made.c_str(), AT_FDCWD, name.c_str(), 0));
}

int sync_file(int descriptor, long number) {
  if (disk == nullptr || !is_on_disk(descriptor)) return static_cast<int>(syscall(number, descriptor));
  return refuses(Call::syncs, descriptor) ? -1 : keep(descriptor);
}

int open_at(int directory, const char* path, int flags, mode_t bits) {
  const bool creates = (flags & O_CREAT) != 0 && ::faccessat(directory, path, F_OK, 0) != 0;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || creates;
  if (writes && refusal(Call::names) != 0 && refuses(Call::names, directory, path)) return -1;
  if (creates && refusal(Call::lengthens) != 0 && refuses(Call::lengthens, directory, path)) return -1;
  return static_cast<int>(syscall(SYS_openat, directory, path, flags, bits));
}

mode_t bits_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

__attribute__((constructor)) void forebay_begin_frail_disk() {
  const char* folder = std::getenv("FOREBAY_FRAIL_DISK");
  const char* root = std::getenv("FOREBAY_FRAIL_ROOT");
  // What the server starts is on sound disks.
  ::unsetenv("LD_PRELOAD");
  if (folder == nullptr || root == nullptr) return;
  const std::string path = std::string(folder) + "/mode";
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
  void* page = file < 0 ? MAP_FAILED : ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) ::close(file);
  if (page == MAP_FAILED) std::abort();
  disk = new Disk{root, folder, static_cast<const volatile char*>(page)};
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t bits = bits_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, bits);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t bits = bits_of(flags, arguments);
  va_end(arguments);
  return open_at(directory, path, flags, bits);
}
int openat64(int directory, const char* path, int flags, ...) __attribute__((alias("openat")));

ssize_t pread(int descriptor, void* data, std::size_t size, off_t offset) {
  return refuses(Call::reads, descriptor) ? -1 : syscall(SYS_pread64, descriptor, data, size, offset);
}
ssize_t pread64(int descriptor, void* data, std::size_t size, off64_t offset) __attribute__((alias("pread")));

ssize_t sendfile(int to, int from, off_t* offset, std::size_t size) noexcept {
  return refuses(Call::reads, from) ? -1 : syscall(SYS_sendfile, to, from, offset, size);
}
ssize_t sendfile64(int to, int from, off64_t* offset, std::size_t size) noexcept __attribute__((alias("sendfile")));

ssize_t pwrite(int descriptor, const void* data, std::size_t size, off_t offset) {
  return refuses_write(descriptor, offset + static_cast<off_t>(size))
             ? -1
             : syscall(SYS_pwrite64, descriptor, data, size, offset);
}
ssize_t pwrite64(int descriptor, const void* data, std::size_t size, off64_t offset) __attribute__((alias("pwrite")));

ssize_t pwritev(int descriptor, const iovec* parts, int count, off_t offset) {
  off_t end = offset;
  for (int i = 0; i < count; ++i) end += static_cast<off_t>(parts[i].iov_len);
  return refuses_write(descriptor, end) ? -1 : syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
}
ssize_t pwritev64(int descriptor, const iovec* parts, int count, off64_t offset) __attribute__((alias("pwritev")));

int fallocate(int descriptor, int how, off_t offset, off_t size) {
  if (refuses(Call::writes, descriptor)) return -1;
  const bool lengthens = is_beyond_end(descriptor, offset + size);
  if (lengthens && refuses(Call::lengthens, descriptor)) return -1;
  return static_cast<int>(syscall(SYS_fallocate, descriptor, how, offset, size));
}
int fallocate64(int descriptor, int how, off64_t offset, off64_t size) __attribute__((alias("fallocate")));

int posix_fallocate(int descriptor, off_t offset, off_t size) {
  return fallocate(descriptor, 0, offset, size) == 0 ? 0 : errno;
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t size) __attribute__((alias("posix_fallocate")));

int fsync(int descriptor) {
  return sync_file(descriptor, SYS_fsync);
}
int fdatasync(int descriptor) {
  return sync_file(descriptor, SYS_fdatasync);
}

int renameat2(int from, const char* old_path, int to, const char* new_path, unsigned flags) noexcept {
  if (refuses(Call::names, to, new_path)) return -1;
  return static_cast<int>(syscall(SYS_renameat2, from, old_path, to, new_path, flags));
}
int renameat(int from, const char* old_path, int to, const char* new_path) noexcept {
  return renameat2(from, old_path, to, new_path, 0);
}
int rename(const char* old_path, const char* new_path) noexcept {
  return renameat2(AT_FDCWD, old_path, AT_FDCWD, new_path, 0);
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  if (refuses(Call::names, directory, path)) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, directory, path, flags));
}
int unlink(const char* path) noexcept {
  return unlinkat(AT_FDCWD, path, 0);
}

int mkdirat(int directory, const char* path, mode_t bits) noexcept {
  if (refuses(Call::names, directory, path) || refuses(Call::lengthens, directory, path)) return -1;
  return static_cast<int>(syscall(SYS_mkdirat, directory, path, bits));
}
int mkdir(const char* path, mode_t bits) noexcept {
  return mkdirat(AT_FDCWD, path, bits);
}

}  // extern "C"
#pragma GCC visibility pop
