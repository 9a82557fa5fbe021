// SPDX-License-Identifier: Apache-2.0
// Preloaded into a process, sees each change that it makes to files below one folder, whichever library makes it;
// writes them down, and at a chosen one ends the process as SIGKILL from outside would, or lets it fail.
//
// A caller in the process begins it, or FOREBAY_WATCH_CHANGES in the environment that the process is started with.
//
// The functions below stand in front of the C library's of the same names and make the system calls themselves. Not
// seen are changes that the C library makes inside (fwrite, mkstemp) and stores into mappings: a test that counts on
// this looks whether every file that it finds was seen being written.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

// What happens at the chosen change. Failing, it does nothing and says EIO. Full, half of its bytes still find room;
// from then on all that takes space says ENOSPC.
enum class Moment : int { before = 0, halfway = 1, behind = 2, failing = 3, full = 4 };

struct Plan {
  std::string folder;
  int log;             // each change is a line there
  std::string change;  // "KIND PATH" as in the log; empty: none is chosen
  int occurrence;      // the first is 1
  Moment moment;
  std::string token;  // of several processes with this plan, the one that removes this file meets it; empty: each
};

const Plan* plan = nullptr;  // set once, while the process has one thread
std::atomic<int> occurrences = 0;
std::atomic<bool> disk_full = false;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) {
    ::pause();
  }
}

std::string link_text(const std::string& link) {
  std::string text(4096, '\0');
  const ssize_t size = ::readlink(link.c_str(), text.data(), text.size());
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return text;
}

std::string place_of(int descriptor) {
  return link_text(descriptor == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(descriptor));
}

std::string place_of(int directory, std::string_view path) {
  // Below a descriptor, as it may also be named.
  constexpr std::string_view descriptors = "/proc/self/fd/";
  if (path.starts_with(descriptors)) {
    const std::size_t slash = std::min(path.find('/', descriptors.size()), path.size());
    return link_text(std::string(path.substr(0, slash))).append(path.substr(slash));
  }
  if (path.starts_with('/')) {
    return std::string(path);
  }
  return place_of(directory).append("/").append(path);
}

// Random digits are others in each run. Hidden names end with "-" and eight hexadecimal ones, which become "?" each; a
// whole part of a name, between dots and slashes, that is a uuid or a number of many digits becomes one "?".
std::string without_random_digits(std::string path) {
  constexpr std::size_t digits = 8;
  constexpr std::size_t many = 12;
  for (std::size_t dash = path.find('-'); dash != std::string::npos; dash = path.find('-', dash + 1)) {
    const std::size_t begin = dash + 1;
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end - begin == digits &&
        std::all_of(&path[begin], &path[end], [](unsigned char letter) { return std::isxdigit(letter) != 0; })) {
      path.replace(begin, digits, digits, '?');
    }
  }
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t size = std::min(path.find_first_of("./", begin), path.size()) - begin;
    const auto part = std::string_view(path).substr(begin, size);
    const bool random = size >= many && part.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
    if (random) path.replace(begin, size, "?");
    begin += (random ? 1 : size) + 1;
  }
  return path;
}

bool is_there(int directory, const char* path) {
  const int error = errno;
  const bool found = ::faccessat(directory, path, F_OK, 0) == 0;
  errno = error;
  return found;
}

// One call that changes something, from its begin to its end.
class Change {
 public:
  Change(std::string_view kind, int descriptor) {
    if (plan != nullptr) {
      begin(kind, place_of(descriptor), kind == "write" || kind == "allocate");
    }
  }
  Change(std::string_view kind, int directory, const char* path) {
    if (plan != nullptr) {
      const bool makes_name = kind == "open" || kind == "mkdir" || kind == "link" || kind == "bind";
      begin(kind, place_of(directory, path), makes_name && !is_there(directory, path));
    }
  }
  ~Change() {
    if (deadly_) {
      die();
    }
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // True if it is not to happen; errno says why.
  bool fails() const {
    if (error_ != 0) {
      errno = error_;
    }
    return error_ != 0;
  }

  // How much of what is to be written gets there: no file system says that none of it did.
  std::size_t share_of(std::size_t size) const { return halfway_ ? (size + 1) / 2 : size; }

 private:
  static bool gets_token() {
    return plan->token.empty() || syscall(SYS_unlinkat, AT_FDCWD, plan->token.c_str(), 0) == 0;
  }

  void meet_plan() {
    switch (plan->moment) {
      case Moment::before:
        die();
      case Moment::halfway:
        halfway_ = deadly_ = true;
        break;
      case Moment::behind:
        deadly_ = true;
        break;
      case Moment::failing:
        error_ = EIO;
        break;
      case Moment::full:
        disk_full = true;
        halfway_ = true;
        break;
    }
  }

  void begin(std::string_view kind, const std::string& place, bool takes_space) {
    const int error = errno;
    const std::string& folder = plan->folder;
    if (place.starts_with(folder) && (place.size() == folder.size() || place[folder.size()] == '/')) {
      std::string line(kind);
      line += " ." + without_random_digits(place.substr(folder.size()));
      if (line == plan->change && ++occurrences == plan->occurrence && gets_token()) {
        meet_plan();
      }
      const bool finds_last_room = halfway_ && kind == "write";
      if (disk_full && takes_space && !finds_last_room) {
        error_ = ENOSPC;
      }
      line += '\n';
      // One call, so that lines of several threads do not mix.
      static_cast<void>(syscall(SYS_write, plan->log, line.data(), line.size()));
    }
    errno = error;
  }

  bool deadly_ = false;
  bool halfway_ = false;
  int error_ = 0;
};

std::vector<iovec> first_bytes(const iovec* parts, int count, const Change& change) {
  std::vector<iovec> found(parts, parts + count);
  std::size_t size = 0;
  for (const iovec& part : found) {
    size += part.iov_len;
  }
  std::size_t left = change.share_of(size);
  for (iovec& part : found) {
    part.iov_len = std::min(part.iov_len, left);
    left -= part.iov_len;
  }
  return found;
}

int open_at(int directory, const char* path, int flags, mode_t mode) {
  if ((flags & (O_CREAT | O_TRUNC)) == 0) {
    return static_cast<int>(syscall(SYS_openat, directory, path, flags, mode));
  }
  const Change change("open", directory, path);
  return change.fails() ? -1 : static_cast<int>(syscall(SYS_openat, directory, path, flags, mode));
}

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

// A system call that is a change as a whole: of what has a name,
template <class... Arguments>
int change_at(const char* kind, int directory, const char* path, long number, Arguments... arguments) {
  const Change change(kind, directory, path);
  return change.fails() ? -1 : static_cast<int>(syscall(number, arguments...));
}

// and of what is open, which is the call's first argument.
template <class... Arguments>
int change_of(const char* kind, int descriptor, long number, Arguments... arguments) {
  const Change change(kind, descriptor);
  return change.fails() ? -1 : static_cast<int>(syscall(number, descriptor, arguments...));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Begins, in a process that has one thread: changes at or below `folder` (absolute, no links in it) are written to the
// descriptor `log`, and at that occurrence of `change` the process meets what `moment` says.
void forebay_watch_changes(const char* folder, int log, const char* change, int occurrence, int moment) {
  plan = new Plan{folder, log, change, occurrence, static_cast<Moment>(moment), ""};
}

// The variable has the same values, one a line, the log by its path; a token may follow.
__attribute__((constructor)) void forebay_watch_changes_if_asked() {
  const char* asked = std::getenv("FOREBAY_WATCH_CHANGES");
  if (asked == nullptr) return;
  std::istringstream lines(asked);
  std::string folder, log, change, occurrence, moment, token;
  for (std::string* value : {&folder, &log, &change, &occurrence, &moment, &token}) std::getline(lines, *value);
  const int descriptor = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  plan = new Plan{
      folder, descriptor, change, std::atoi(occurrence.c_str()), static_cast<Moment>(std::atoi(moment.c_str())), token};
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at(directory, path, flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) __attribute__((alias("openat")));

int creat(const char* path, mode_t mode) {
  return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char* path, mode_t mode) __attribute__((alias("creat")));

FILE* fopen(const char* path, const char* mode) {
  using Open = FILE* (*)(const char*, const char*);
  static const Open next = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "fopen"));
  if (mode[0] == 'r') {
    return next(path, mode);
  }
  const Change change("open", AT_FDCWD, path);
  return change.fails() ? nullptr : next(path, mode);
}
FILE* fopen64(const char* path, const char* mode) __attribute__((alias("fopen")));

// --- Bytes ---

ssize_t write(int descriptor, const void* data, std::size_t size) {
  const Change change("write", descriptor);
  return change.fails() ? -1 : syscall(SYS_write, descriptor, data, change.share_of(size));
}

ssize_t pwrite(int descriptor, const void* data, std::size_t size, off_t offset) {
  const Change change("write", descriptor);
  return change.fails() ? -1 : syscall(SYS_pwrite64, descriptor, data, change.share_of(size), offset);
}
ssize_t pwrite64(int descriptor, const void* data, std::size_t size, off64_t offset) __attribute__((alias("pwrite")));

ssize_t writev(int descriptor, const iovec* parts, int count) {
  const Change change("write", descriptor);
  return change.fails() ? -1 : syscall(SYS_writev, descriptor, first_bytes(parts, count, change).data(), count);
}

ssize_t pwritev(int descriptor, const iovec* parts, int count, off_t offset) {
  const Change change("write", descriptor);
  return change.fails() ? -1
                        : syscall(SYS_pwritev, descriptor, first_bytes(parts, count, change).data(), count, offset, 0);
}
ssize_t pwritev64(int descriptor, const iovec* parts, int count, off64_t offset) __attribute__((alias("pwritev")));

ssize_t sendfile(int to, int from, off_t* offset, std::size_t size) noexcept {
  const Change change("write", to);
  return change.fails() ? -1 : syscall(SYS_sendfile, to, from, offset, change.share_of(size));
}
ssize_t sendfile64(int to, int from, off64_t* offset, std::size_t size) noexcept __attribute__((alias("sendfile")));

ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, std::size_t size, unsigned flags) {
  const Change change("write", to);
  return change.fails() ? -1
                        : syscall(SYS_copy_file_range, from, from_offset, to, to_offset, change.share_of(size), flags);
}

// --- Sizes and syncs ---

int ftruncate(int descriptor, off_t size) noexcept {
  return change_of("truncate", descriptor, SYS_ftruncate, size);
}
int ftruncate64(int descriptor, off64_t size) noexcept __attribute__((alias("ftruncate")));

int truncate(const char* path, off_t size) noexcept {
  return change_at("truncate", AT_FDCWD, path, SYS_truncate, path, size);
}
int truncate64(const char* path, off64_t size) noexcept __attribute__((alias("truncate")));

int fallocate(int descriptor, int mode, off_t offset, off_t size) {
  return change_of("allocate", descriptor, SYS_fallocate, mode, offset, size);
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t size) __attribute__((alias("fallocate")));

int posix_fallocate(int descriptor, off_t offset, off_t size) {
  return change_of("allocate", descriptor, SYS_fallocate, 0, offset, size) == 0 ? 0 : errno;
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t size) __attribute__((alias("posix_fallocate")));

int fsync(int descriptor) {
  return change_of("sync", descriptor, SYS_fsync);
}
int fdatasync(int descriptor) {
  return change_of("sync", descriptor, SYS_fdatasync);
}

int syncfs(int descriptor) noexcept {
  return change_of("sync", descriptor, SYS_syncfs);
}

// --- Names ---

int renameat2(int from, const char* old_path, int to, const char* new_path, unsigned flags) noexcept {
  return change_at("rename", from, old_path, SYS_renameat2, from, old_path, to, new_path, flags);
}
int renameat(int from, const char* old_path, int to, const char* new_path) noexcept {
  return renameat2(from, old_path, to, new_path, 0);
}
int rename(const char* old_path, const char* new_path) noexcept {
  return renameat2(AT_FDCWD, old_path, AT_FDCWD, new_path, 0);
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  return change_at("remove", directory, path, SYS_unlinkat, directory, path, flags);
}
int unlink(const char* path) noexcept {
  return unlinkat(AT_FDCWD, path, 0);
}
int rmdir(const char* path) noexcept {
  return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
int remove(const char* path) noexcept {
  const int result = unlink(path);
  return result != 0 && errno == EISDIR ? rmdir(path) : result;
}

int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  return change_at("mkdir", directory, path, SYS_mkdirat, directory, path, mode);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return mkdirat(AT_FDCWD, path, mode);
}

int linkat(int from, const char* old_path, int to, const char* new_path, int flags) noexcept {
  return change_at("link", to, new_path, SYS_linkat, from, old_path, to, new_path, flags);
}
int link(const char* old_path, const char* new_path) noexcept {
  return linkat(AT_FDCWD, old_path, AT_FDCWD, new_path, 0);
}
int symlinkat(const char* text, int directory, const char* path) noexcept {
  return change_at("link", directory, path, SYS_symlinkat, text, directory, path);
}
int symlink(const char* text, const char* path) noexcept {
  return symlinkat(text, AT_FDCWD, path);
}
int bind(int socket, const sockaddr* address, socklen_t size) noexcept {
  const char* path = reinterpret_cast<const sockaddr_un*>(address)->sun_path;
  if (address->sa_family != AF_UNIX || *path != '/') {
    return static_cast<int>(syscall(SYS_bind, socket, address, size));
  }
  return change_at("bind", AT_FDCWD, path, SYS_bind, socket, address, size);
}

// --- What is known of a file ---

int fchmodat(int directory, const char* path, mode_t mode, int flags) noexcept {
  // The system call knows no flags; the one that there is does not work with Linux's links anyway.
  static_cast<void>(flags);
  return change_at("chmod", directory, path, SYS_fchmodat, directory, path, mode);
}
int chmod(const char* path, mode_t mode) noexcept {
  return fchmodat(AT_FDCWD, path, mode, 0);
}
int fchmod(int descriptor, mode_t mode) noexcept {
  return change_of("chmod", descriptor, SYS_fchmod, mode);
}
int fchownat(int directory, const char* path, uid_t user, gid_t group, int flags) noexcept {
  return change_at("chown", directory, path, SYS_fchownat, directory, path, user, group, flags);
}
int chown(const char* path, uid_t user, gid_t group) noexcept {
  return fchownat(AT_FDCWD, path, user, group, 0);
}
int lchown(const char* path, uid_t user, gid_t group) noexcept {
  return fchownat(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}
int fchown(int descriptor, uid_t user, gid_t group) noexcept {
  return change_of("chown", descriptor, SYS_fchown, user, group);
}
int utimensat(int directory, const char* path, const timespec* times, int flags) noexcept {
  return change_at("utime", directory, path, SYS_utimensat, directory, path, times, flags);
}
int futimens(int descriptor, const timespec* times) noexcept {
  return change_of("utime", descriptor, SYS_utimensat, nullptr, times, 0);
}
int setxattr(const char* path, const char* name, const void* value, std::size_t size, int flags) noexcept {
  return change_at("setxattr", AT_FDCWD, path, SYS_setxattr, path, name, value, size, flags);
}
int lsetxattr(const char* path, const char* name, const void* value, std::size_t size, int flags) noexcept {
  return change_at("setxattr", AT_FDCWD, path, SYS_lsetxattr, path, name, value, size, flags);
}
int fsetxattr(int descriptor, const char* name, const void* value, std::size_t size, int flags) noexcept {
  return change_of("setxattr", descriptor, SYS_fsetxattr, name, value, size, flags);
}

}  // extern "C"
#pragma GCC visibility pop
