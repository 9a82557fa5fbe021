// SPDX-License-Identifier: Apache-2.0
#include "storage/directory_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/system_error.h"
#include "base/uuid.h"

namespace forebay::storage {
namespace {

constexpr std::size_t levels_max = 32;
constexpr std::size_t moved_name_bytes =
    64;  // of the name that it keeps: a part that is moved again must not grow a longer one
constexpr std::uint64_t block_bytes = 512;  // the unit of st_blocks, whatever the file system's own is

Descriptor open_directory_at(int parent, const char* name) {
  return Descriptor(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// One directory that is being read. readdir() allows removing entries on the way.
struct Level {
  std::string name;
  std::unique_ptr<DIR, int (*)(DIR*)> stream{nullptr, ::closedir};

  int descriptor() const noexcept { return ::dirfd(stream.get()); }
  static std::optional<Level> of(Descriptor descriptor, std::string name) {
    DIR* stream = ::fdopendir(descriptor.get());
    if (stream == nullptr) return std::nullopt;
    (void)descriptor.release();
    return Level{std::move(name), {stream, ::closedir}};
  }
  /// The next entry's name, or nothing; errno tells an error from the end.
  const char* next() {
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(stream.get());
      if (entry == nullptr) return nullptr;
      const std::string_view found = entry->d_name;
      if (found != "." && found != "..") return entry->d_name;
    }
  }
};

/// Walks down with an explicit stack of open directories.
class TreeDeletion {
 public:
  TreeDeletion(int top, std::string path, std::size_t& entries_left)
      : top_(top), path_(std::move(path)), entries_left_(entries_left) {}

  Result<bool> run(const std::string& name) {
    bool complete = remove_entry(top_, name.c_str());
    while (!levels_.empty()) {
      if (entries_left_ == 0) {
        complete = false;
        break;
      }
      const char* child = levels_.back().next();
      if (child != nullptr) {
        (void)remove_entry(levels_.back().descriptor(), child);
        continue;
      }
      if (errno != 0) note(errno, levels_.back().name);
      const std::string done = std::move(levels_.back().name);
      levels_.pop_back();
      const int parent = levels_.empty() ? top_ : levels_.back().descriptor();
      if (::unlinkat(parent, done.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
        note(errno, done);
        continue;
      }
      --entries_left_;
      complete = levels_.empty();
    }
    if (failure_) return fail(std::move(*failure_));
    return complete && !moved_up_;
  }

 private:
  /// Deletes a file at once; a directory goes on the stack. True if it is gone.
  bool remove_entry(int parent, const char* name) {
    if (entries_left_ == 0) return false;
    struct stat status{};
    if (::fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return true;
      return note(errno, name);
    }
    if (!S_ISDIR(status.st_mode)) {
      if (::unlinkat(parent, name, 0) != 0 && errno != ENOENT) return note(errno, name);
      --entries_left_;
      return true;
    }
    if (device_ && *device_ != status.st_dev) return note(EBUSY, name);
    if (levels_.size() >= levels_max) {
      const std::string higher =
          levels_.front().name.substr(0, moved_name_bytes) + "." + std::to_string(random_number());
      if (::renameat(parent, name, top_, higher.c_str()) != 0) return note(errno, name);
      --entries_left_;
      moved_up_ = true;
      return false;
    }
    // Users may have locked their directories. Root needs no permission; without root there is nobody to race with.
    const bool locked = ::geteuid() != 0 && (status.st_mode & 0700) != 0700;
    const int stays_locked = locked && ::fchmodat(parent, name, 0700, 0) != 0 ? errno : 0;
    Descriptor descriptor = open_directory_at(parent, name);
    if (!descriptor.valid()) return note(stays_locked != 0 ? stays_locked : errno, name);
    if (!device_) device_ = status.st_dev;
    auto level = Level::of(std::move(descriptor), name);
    if (!level) return note(errno, name);
    levels_.push_back(std::move(*level));
    return false;
  }

  bool note(int number, const std::string& name) {
    if (failure_) return false;
    std::string where = path_;
    for (const Level& level : levels_) where += "/" + level.name;
    failure_ = system_error(number, "cannot delete", where + "/" + name).value();
    return false;
  }

  const int top_;
  const std::string path_;
  std::size_t& entries_left_;
  std::vector<Level> levels_;
  std::optional<dev_t> device_;
  bool moved_up_ = false;
  std::optional<Error> failure_;
};

}  // namespace

Result<bool> delete_tree(const std::string& directory, const std::string& name, std::size_t& entries_left) {
  const Descriptor top(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!top.valid()) return system_error(errno, "cannot open directory", directory);
  return TreeDeletion(top.get(), directory, entries_left).run(name);
}

}  // namespace forebay::storage
