// SPDX-License-Identifier: Apache-2.0
#include "storage/tree_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/plain_text.h"
#include "base/system_error.h"

namespace forebay::storage {
namespace {

constexpr std::size_t recent_levels = 16;  // the lowest ones, to which the walk comes back next
constexpr std::size_t spread_levels = 16;
static_assert(recent_levels + spread_levels + 4 <= TreeWalk::descriptors_max);
constexpr std::size_t entries_bytes = std::size_t{1} << 15;
constexpr std::size_t place_bytes_max = 160;
constexpr unsigned looks_at = STATX_BASIC_STATS | STATX_MNT_ID;
// Without a question to a file system that may never answer.
constexpr int looks_so = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;

Error error_of(int number, const char* action) {
  return system_error(number, action).value();
}

bool is_gone(int number) {
  return number == ENOENT || number == ENOTDIR || number == ELOOP || number == ESTALE;
}

}  // namespace

/// As getdents64(2) gives it.
struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t next_offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

TreeWalk::TreeWalk(Descriptor top, std::string shown, TreeVisitor& visitor)
    : visitor_(visitor), top_(std::move(top)), shown_(std::move(shown)) {}

bool TreeWalk::advance(std::size_t entries_max) {
  if (!std::exchange(begun_, true)) {
    struct statx status{};
    struct stat plain{};
    if (::statx(top_.get(), "", AT_EMPTY_PATH, looks_at, &status) != 0 || ::fstat(top_.get(), &plain) != 0) {
      visitor_.missed(*this, ".", error_of(errno, "cannot look at the folder"));
      return true;
    }
    device_ = plain.st_dev;
    mount_ = (status.stx_mask & STATX_MNT_ID) != 0 ? status.stx_mnt_id : 0;
    enter(".", top_);
  }
  for (; entries_max > 0 && !levels_.empty(); --entries_max) {
    const DirectoryEntry* entry = next();
    if (entry == nullptr) {
      leave();
      continue;
    }
    const std::string_view name = entry->name;
    if (name == "." || name == "..") continue;
    look_at(entry->name, entry->type == DT_DIR || entry->type == DT_UNKNOWN);
  }
  return levels_.empty();
}

bool TreeWalk::is_elsewhere(const struct statx& status) const noexcept {
  if (makedev(status.stx_dev_major, status.stx_dev_minor) != device_) return true;
  return mount_ != 0 && (status.stx_mask & STATX_MNT_ID) != 0 && status.stx_mnt_id != mount_;
}

void TreeWalk::look_at(const char* name, bool may_be_folder) {
  Level& level = levels_.back();
  if (level.enter == TreeVisitor::Enter::folders && !may_be_folder) return;
  const int parent = level.descriptor.get();
  struct statx status{};
  if (::statx(parent, name, looks_so, looks_at, &status) != 0) {
    if (!is_gone(errno)) visitor_.missed(*this, name, error_of(errno, "cannot look at it"));
    return;
  }
  if (is_elsewhere(status)) {
    visitor_.missed(*this, name, {ErrorCode::unsupported, "another file system is mounted there", {}});
    return;
  }
  if (!S_ISDIR(status.stx_mode)) {
    if (level.enter == TreeVisitor::Enter::all) visitor_.entry(*this, parent, name, status);
    return;
  }
  const std::string kept = name;
  const Descriptor folder = open_below(parent, kept, O_PATH | O_DIRECTORY, Mounts::refused);
  if (!folder.valid()) {
    if (!is_gone(errno)) visitor_.missed(*this, kept, error_of(errno, "cannot open the folder"));
    return;
  }
  if (levels_.size() >= depth_max) {
    visitor_.missed(*this, kept,
                    {ErrorCode::unsupported, fmt::format("folders are nested deeper than {}", depth_max), {}});
    return;
  }
  enter(kept, folder);
}

void TreeWalk::enter(const std::string& name, const Descriptor& folder) {
  struct stat status{};
  if (::fstat(folder.get(), &status) != 0) {
    visitor_.missed(*this, name, error_of(errno, "cannot look at the folder"));
    return;
  }
  const auto above = levels_.empty() ? TreeVisitor::Enter::all : levels_.back().enter;
  const auto enters = visitor_.folder(*this, name, folder.get(), status, above);
  if (enters == TreeVisitor::Enter::nothing) return;
  Level level;
  level.name = name;
  level.identity = FileIdentity::of(status);
  level.enter = enters;
  level.descriptor = Descriptor(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!level.descriptor.valid()) {
    visitor_.missed(*this, name, error_of(errno, "cannot list the folder"));
    return;
  }
  levels_.push_back(std::move(level));
  visitor_.entered();
  release_middle();
}

const DirectoryEntry* TreeWalk::next() {
  Level& level = levels_.back();
  if (!level.entries) {
    level.entries = std::make_unique<Entries>();
    level.entries->bytes.resize(entries_bytes);
  }
  Entries& entries = *level.entries;
  if (entries.position == entries.used) {
    const auto read = ::syscall(SYS_getdents64, level.descriptor.get(), entries.bytes.data(), entries.bytes.size());
    // A folder that was removed meanwhile has no entries any more.
    if (read < 0 && !is_gone(errno)) visitor_.missed(*this, ".", error_of(errno, "cannot list the folder"));
    entries.position = 0;
    entries.used = read < 0 ? 0 : static_cast<std::size_t>(read);
    if (entries.used == 0) return nullptr;
  }
  const auto* entry = reinterpret_cast<const DirectoryEntry*>(entries.bytes.data() + entries.position);
  entries.position += entry->length;
  level.offset = entry->next_offset;
  return entry;
}

void TreeWalk::leave() {
  const Descriptor below = std::move(levels_.back().descriptor);
  levels_.pop_back();
  visitor_.left();
  if (levels_.empty() || levels_.back().descriptor.valid()) return;
  Level& level = levels_.back();
  level.descriptor = Descriptor(::openat(below.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status{};
  const bool same = level.descriptor.valid() && ::fstat(level.descriptor.get(), &status) == 0 &&
                    FileIdentity::of(status) == level.identity &&
                    ::lseek(level.descriptor.get(), level.offset, SEEK_SET) == level.offset;
  if (!same) begin_again();
}

void TreeWalk::begin_again() {
  levels_.back().descriptor.reset();
  // The top always keeps its descriptor.
  while (!levels_.back().descriptor.valid()) levels_.pop_back();
  Level& level = levels_.back();
  if (++begun_again_ > begins_again_max) {
    visitor_.missed(*this, ".", {ErrorCode::busy, "folders are moved while they are looked at", {}});
    levels_.clear();
    return;
  }
  level.entries.reset();
  level.offset = 0;
  if (::lseek(level.descriptor.get(), 0, SEEK_SET) != 0)
    visitor_.missed(*this, ".", error_of(errno, "cannot list the folder again"));
  visitor_.begins_again(levels_.size() - 1);
}

void TreeWalk::release_middle() {
  if (levels_.size() <= recent_levels + 1) return;
  const auto release = [this](std::size_t index) {
    if (index % stride_ == 0) return;
    levels_[index].descriptor.reset();
    levels_[index].entries.reset();
  };
  const std::size_t last = levels_.size() - 1 - recent_levels;
  if (last / stride_ >= spread_levels) {
    stride_ *= 2;
    for (std::size_t index = 0; index < last; ++index) release(index);
  }
  release(last);
}

std::size_t TreeWalk::descriptors() const noexcept {
  const auto held = std::ranges::count_if(levels_, [](const Level& level) { return level.descriptor.valid(); });
  return static_cast<std::size_t>(held) + (top_.valid() ? 1 : 0);
}

std::string TreeWalk::place(const std::string& name) const {
  std::string path = name == "." ? "" : name;
  // From below: of a deep one its end says most.
  for (std::size_t index = levels_.size(); index > 1; --index) {
    if (path.size() > place_bytes_max) break;
    path = levels_[index - 1].name + (path.empty() ? "" : "/") + path;
  }
  if (path.size() > place_bytes_max) {
    path = shown_ + "/..." + path.substr(path.size() - place_bytes_max);
  } else {
    path = shown_ + (path.empty() ? "" : "/") + path;
  }
  return visible_text(path);
}

}  // namespace forebay::storage
