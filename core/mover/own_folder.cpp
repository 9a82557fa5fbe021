// SPDX-License-Identifier: Apache-2.0
#include "mover/own_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <forebay/checksum.h>

#include "base/file_system_user.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::mover {
namespace {

constexpr const char* secret_name = "secret";
constexpr int names_tried = 16;
constexpr std::size_t digits = 8;
constexpr std::chrono::milliseconds lock_wait_max(2000);
constexpr std::chrono::milliseconds lock_poll(10);

std::string folder_name(std::string_view secret, int number) {
  const std::string text = fmt::format("{}/{}", secret, number);
  return fmt::format("{}{:08x}", own_folder_prefix, crc32c(std::as_bytes(std::span(text))));
}

/// Takes the lock. An earlier run of the stage whose parent was killed needs a moment to end.
bool locked(int descriptor) {
  const auto deadline = std::chrono::steady_clock::now() + lock_wait_max;
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    if (std::chrono::steady_clock::now() > deadline) {
      errno = EWOULDBLOCK;
      return false;
    }
    std::this_thread::sleep_for(lock_poll);
  }
  return true;
}

}  // namespace

bool is_own_folder_name(std::string_view name) noexcept {
  if (name.size() != own_folder_prefix.size() + digits || !name.starts_with(own_folder_prefix)) return false;
  return name.substr(own_folder_prefix.size()).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<OwnFolder> OwnFolder::open(int directory, std::string_view secret, Mounts mounts) {
  return look(directory, secret, mounts, true);
}

Result<OwnFolder> OwnFolder::find(int directory, std::string_view secret, Mounts mounts) {
  return look(directory, secret, mounts, false);
}

Result<OwnFolder> OwnFolder::look(int directory, std::string_view secret, Mounts mounts, bool make) {
  for (int number = 0; number < names_tried; ++number) {
    OwnFolder folder;
    folder.name_ = folder_name(secret, number);
    ASSIGN_OR_RETURN(const bool taken, folder.take(directory, secret, mounts, make));
    if (taken) return folder;
    struct stat status{};
    // Names are taken in their order: behind one that is free there is none.
    if (!make && ::fstatat(directory, folder.name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return OwnFolder();
  }
  if (!make) return OwnFolder();
  return fail(ErrorCode::refused,
              fmt::format("all {} names for a temporary folder are taken by what this stage did not make; remove the "
                          "folders {}* there",
                          names_tried, own_folder_prefix));
}

Result<bool> OwnFolder::take(int directory, std::string_view secret, Mounts mounts, bool make) {
  bool made = false;
  if (make) {
    made = ::mkdirat(directory, name_.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) return system_error(errno, "cannot make a folder in the destination");
  }
  folder_ = open_below(directory, name_, O_RDONLY | O_DIRECTORY, mounts);
  struct stat status{};
  if (!folder_.valid() || ::fstat(folder_.get(), &status) != 0) return false;
  if (status.st_uid != acting_user() || (status.st_mode & 07777 & ~static_cast<mode_t>(S_ISGID)) != 0700) return false;
  secret_ = open_below(folder_.get(), secret_name, O_RDWR, Mounts::refused);
  std::string held;
  if (secret_.valid()) {
    struct stat about{};
    if (::fstat(secret_.get(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != acting_user()) return false;
    std::array<char, 256> buffer{};
    const ssize_t size = ::pread(secret_.get(), buffer.data(), buffer.size(), 0);
    if (size < 0) return false;
    held.assign(buffer.data(), static_cast<std::size_t>(size));
  } else if (errno != ENOENT) {
    return false;
  }
  found_ = !made && held == secret;
  if (!found_) {
    // A run that died before it had written all of the secret left nothing else: only that is used.
    if (!secret.starts_with(held)) return false;
    ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in(folder_.get(), name_));
    if (names.size() > (secret_.valid() ? 1U : 0U)) return false;
    if (!make) {
      found_ = true;  // to be removed
    } else if (!secret_.valid()) {
      secret_ =
          Descriptor(::openat(folder_.get(), secret_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
      if (!secret_.valid()) return system_error(errno, "cannot write in the destination");
    }
  }
  if (secret_.valid() && !locked(secret_.get())) {
    if (errno == EWOULDBLOCK)
      return fail(ErrorCode::busy,
                  "another stage is writing to this destination; wait for it (`forebay stages`) or choose another");
    return system_error(errno, "cannot lock a file in the destination");
  }
  if (make && held != secret) {
    std::size_t written = 0;
    while (written < secret.size()) {
      const ssize_t count =
          ::pwrite(secret_.get(), secret.data() + written, secret.size() - written, static_cast<off_t>(written));
      if (count <= 0) return system_error(errno, "cannot write in the destination");
      written += static_cast<std::size_t>(count);
    }
    if (::fsync(secret_.get()) != 0 || ::fsync(folder_.get()) != 0)
      return system_error(errno, "cannot sync the destination");
  }
  return true;
}

Result<void> OwnFolder::remove(int directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in(folder_.get(), name_));
  for (const std::string& name : names)
    if (name != secret_name) RETURN_IF_ERROR(remove_entry(folder_.get(), name, name_));
  // Last: without it, what is left of a removal would be nobody's.
  if (::unlinkat(folder_.get(), secret_name, 0) != 0 && errno != ENOENT)
    return system_error(errno, "cannot remove a file of the stage", name_);
  // Somebody may have moved it away: only an empty folder goes.
  const auto remove_folder = [&] { return ::unlinkat(directory, name_.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno; };
  const auto is_full = [](int error) { return error == ENOTEMPTY || error == EEXIST; };
  int error = remove_folder();
  secret_.reset();
  folder_.reset();
  // NFS keeps a file that was removed while it was open in its folder, under another name, until it is closed.
  if (is_full(error)) error = remove_folder();
  if (error != 0 && error != ENOENT && error != ENOTDIR && !is_full(error))
    return system_error(error, "cannot remove the stage's folder", name_);
  return {};
}

Result<std::vector<std::string>> names_in(int directory, const std::string& where) {
  Descriptor again(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again.valid()) return system_error(errno, "cannot read directory", where);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(again.get()), ::closedir);
  if (stream == nullptr) return system_error(errno, "cannot read directory", where);
  (void)again.release();
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return system_error(errno, "cannot read directory", where);
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

/// A directory on the way down, with what is left of its names.
struct Doomed {
  Descriptor descriptor;
  std::string name;
  std::vector<std::string> names;
};

std::optional<Error> doom(int parent, const std::string& name, const std::string& where, std::vector<Doomed>& levels) {
  if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return std::nullopt;
  const int number = errno;
  Descriptor opened;
  if (number == EISDIR || number == EPERM || number == EACCES) {
    opened = open_below(parent, name, O_RDONLY | O_DIRECTORY, Mounts::refused);
    if (!opened.valid() && errno == EACCES) {
      // A directory of our own that is to be closed in the end.
      const Descriptor closed = open_below(parent, name, O_PATH | O_DIRECTORY, Mounts::refused);
      if (closed.valid()) (void)::chmod(("/proc/self/fd/" + std::to_string(closed.get())).c_str(), 0700);
      opened = open_below(parent, name, O_RDONLY | O_DIRECTORY, Mounts::refused);
    }
  }
  if (!opened.valid()) return system_error(number, "cannot remove", where + "/" + name).value();
  (void)::fchmod(opened.get(), 0700);
  auto names = names_in(opened.get(), where + "/" + name);
  if (!names) return names.error();
  levels.push_back({std::move(opened), name, *std::move(names)});
  return std::nullopt;
}

}  // namespace

Result<void> remove_entry(int directory, const std::string& name, const std::string& where) {
  std::vector<Doomed> levels;
  if (auto error = doom(directory, name, where, levels)) return fail(*std::move(error));
  while (!levels.empty()) {
    if (!levels.back().names.empty()) {
      const std::string child = std::move(levels.back().names.back());
      levels.back().names.pop_back();
      if (auto error = doom(levels.back().descriptor.get(), child, where, levels)) return fail(*std::move(error));
      continue;
    }
    const std::string done = std::move(levels.back().name);
    levels.pop_back();
    const int parent = levels.empty() ? directory : levels.back().descriptor.get();
    if (::unlinkat(parent, done.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
      return system_error(errno, "cannot remove", where + "/" + done);
  }
  return {};
}

}  // namespace forebay::mover
