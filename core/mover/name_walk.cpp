// SPDX-License-Identifier: Apache-2.0
#include "mover/name_walk.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::mover {
namespace {

constexpr const char* outside_files =
    "a path in a reservation is relative to its files and does not lead out of them; write RES:folder/file";
constexpr std::size_t path_bytes_max = PATH_MAX - 1;

}  // namespace

Result<NameWalk> NameWalk::from_top(LinkRule rule) {
  NameWalk walk;
  walk.rule_ = rule;
  Descriptor top(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top.valid()) return system_error(errno, "cannot open directory", "/");
  RETURN_IF_ERROR(walk.push(std::move(top), ""));
  return walk;
}

void NameWalk::confine(LinkRule rule) {
  rule_ = rule;
  confined_ = true;
  floor_ = levels_.size() - 1;
}

Result<void> NameWalk::enter(std::string_view path, bool make) {
  if (path.size() > path_bytes_max)
    return fail(ErrorCode::invalid_argument, "the name is longer than 4095 bytes", std::string(path.substr(0, 100)));
  if (path.starts_with('/')) {
    if (confined_) return fail(ErrorCode::invalid_argument, outside_files, std::string(path));
    levels_.resize(1);
  }
  std::vector<std::string> pending;  // the next component is the last one
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    pending.emplace_back(slash == std::string_view::npos ? path : path.substr(slash + 1));
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
  while (!pending.empty()) {
    std::string name = std::move(pending.back());
    pending.pop_back();
    RETURN_IF_ERROR(step(std::move(name), pending, make));
  }
  return {};
}

Result<void> NameWalk::step(std::string name, std::vector<std::string>& pending, bool make) {
  if (name.empty() || name == ".") return {};
  if (name == "..") {
    if (levels_.size() - 1 > floor_) {
      levels_.pop_back();
      return {};
    }
    if (!confined_) return {};
    return fail(ErrorCode::invalid_argument, outside_files, place(name));
  }
  // First as a directory, which also mounts what is mounted at its first use.
  while (true) {
    Descriptor entered(::openat(directory(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (entered.valid()) {
      if (confined_ && !on_same_mount(entered.get(), levels_[floor_].descriptor.get()))
        return fail(ErrorCode::permission_denied,
                    "another file system is mounted there, inside the reservation's files", place(name));
      return push(std::move(entered), std::move(name));
    }
    if (errno == ENOENT && make) {
      if (::mkdirat(directory(), name.c_str(), 0777) != 0 && errno != EEXIST)
        return system_error(errno, "cannot make the directory", place(name));
      Descriptor holder(::openat(directory(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (holder.valid()) made_.push_back(std::move(holder));
      continue;
    }
    if (errno != ENOTDIR && errno != ELOOP) {
      if (errno == ENOENT) return fail(ErrorCode::not_found, "there is no such directory", place(name));
      return system_error(errno, "cannot open", place(name));
    }
    const Descriptor other(::openat(directory(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!other.valid()) {
      if (errno == ENOENT) continue;
      return system_error(errno, "cannot open", place(name));
    }
    struct stat status{};
    if (::fstat(other.get(), &status) != 0) return system_error(errno, "cannot look at", place(name));
    if (S_ISDIR(status.st_mode)) continue;  // made this very moment
    if (!S_ISLNK(status.st_mode))
      return fail(ErrorCode::invalid_argument, "this is a file, and a directory is needed there", place(name));
    return pass_link(other.get(), status, name, pending);
  }
}

Result<void> NameWalk::pass_link(int link, const struct stat& status, const std::string& name,
                                 std::vector<std::string>& pending) {
  if (rule_.none)
    return fail(ErrorCode::invalid_argument,
                "this is a link. A path in a reservation does not lead out of its files, and passes no link; write the "
                "path that it stands for",
                place(name));
  if (!rule_.any && status.st_uid != 0 && status.st_uid != rule_.trusted)
    return fail(ErrorCode::permission_denied,
                "this link belongs to user " + std::to_string(status.st_uid) +
                    ", who could change it meanwhile; write the path that it stands for",
                place(name));
  if (--links_left_ < 0) return fail(ErrorCode::invalid_argument, "too many links, one leads to the next", place(name));
  std::array<char, PATH_MAX> buffer{};
  const ssize_t size = ::readlinkat(link, "", buffer.data(), buffer.size());
  if (size < 0) return system_error(errno, "cannot read the link", place(name));
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  if (text.starts_with('/')) {
    if (confined_)
      return fail(ErrorCode::invalid_argument,
                  "a path in a reservation does not lead out of its files, and this link does", place(name));
    levels_.resize(1);
  }
  while (!text.empty()) {
    const std::size_t slash = text.rfind('/');
    pending.emplace_back(slash == std::string_view::npos ? text : text.substr(slash + 1));
    text = slash == std::string_view::npos ? std::string_view() : text.substr(0, slash);
  }
  return {};
}

Result<std::string> NameWalk::find(std::string name) {
  while (true) {
    const Descriptor entry(::openat(directory(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (!entry.valid() || ::fstat(entry.get(), &status) != 0) {
      if (errno == ENOENT) return fail(ErrorCode::not_found, "there is no such file", place(name));
      return system_error(errno, "cannot look at", place(name));
    }
    if (!S_ISLNK(status.st_mode)) return name;
    std::vector<std::string> pending;
    RETURN_IF_ERROR(pass_link(entry.get(), status, name, pending));
    while (!pending.empty() && pending.front().empty()) pending.erase(pending.begin());
    if (pending.empty()) return std::string();
    std::string last = std::move(pending.front());
    pending.erase(pending.begin());
    while (!pending.empty()) {
      std::string next = std::move(pending.back());
      pending.pop_back();
      RETURN_IF_ERROR(step(std::move(next), pending, false));
    }
    if (last == "." || last == "..") {
      RETURN_IF_ERROR(step(std::move(last), pending, false));
      return std::string();
    }
    name = std::move(last);
  }
}

Result<void> NameWalk::push(Descriptor descriptor, std::string name) {
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) return system_error(errno, "cannot look at the directory", place(name));
  levels_.push_back({std::move(descriptor), FileIdentity::of(status), std::move(name)});
  return {};
}

std::vector<FileIdentity> NameWalk::identities() const {
  std::vector<FileIdentity> found;
  found.reserve(levels_.size());
  for (const Level& level : levels_) found.push_back(level.identity);
  return found;
}

std::string NameWalk::text() const {
  std::string path;
  for (const Level& level : levels_)
    if (!level.name.empty()) path += "/" + level.name;
  return path.empty() ? "/" : path;
}

std::string NameWalk::place(const std::string& name) const {
  if (levels_.empty()) return name;
  const std::string path = text();
  return (path == "/" ? "" : path) + "/" + name;
}

SplitName split_name(std::string_view path) {
  SplitName split;
  while (path.size() > 1 && path.ends_with('/')) {
    split.asks_for_content = true;
    path.remove_suffix(1);
  }
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) {
    split.last = path;
  } else {
    split.parent = slash == 0 ? "/" : path.substr(0, slash);
    split.last = path.substr(slash + 1);
  }
  if (split.last == "." || split.last == ".." || split.last.empty()) {
    // These name a directory by where it is, not by an entry.
    split.parent = path;
    split.last.clear();
  }
  return split;
}

}  // namespace forebay::mover
