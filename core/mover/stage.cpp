// SPDX-License-Identifier: Apache-2.0
#include "mover/stage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/return_error.h"
#include "base/system_error.h"
#include "mover/ends.h"
#include "mover/kept_files.h"
#include "mover/new_entries.h"
#include "mover/own_folder.h"
#include "mover/placing.h"
#include "mover/two_trees.h"

namespace forebay::mover {
namespace {

constexpr std::uint64_t block_bytes = 4096;
constexpr std::size_t threads_min = 4;
constexpr std::size_t threads_max = 16;

std::size_t threads() {
  return std::clamp<std::size_t>(2 * std::size_t{std::thread::hardware_concurrency()}, threads_min, threads_max);
}

/// What a file takes on the device; holes stay holes.
std::uint64_t space_of(const struct stat& status) {
  const auto rounded = [](std::uint64_t bytes) { return (bytes + block_bytes - 1) / block_bytes * block_bytes; };
  return std::min(rounded(static_cast<std::uint64_t>(status.st_size)),
                  rounded(static_cast<std::uint64_t>(status.st_blocks) * 512));
}

/// An entry of a directory that is there at both ends.
struct Child {
  std::string source;
  std::string target;
  std::string shown;
  bool was_there = false;
  bool was_directory = false;
  bool is_needed = false;
  bool is_later_name = false;  ///< of a file that has another name in the source
  bool may_be_kept = false;
  std::optional<FileRow> kept;
};

class Stage {
 public:
  Stage(Work& work, Ends ends, const Request& request)
      : work_(work),
        ends_(std::move(ends)),
        secret_(request.secret),
        whole_(request.whole),
        replaces_(request.replaces) {}

  Result<void> plan();
  Result<void> run();
  std::uint64_t copied() const { return work_.report.items_done() - work_.report.items_kept(); }

 private:
  struct Counted {
    std::uint64_t items = 0;
    std::uint64_t bytes = 0;
    std::uint64_t missing_bytes = 0;
  };
  Result<void> count(int source, const std::string& name, int target, const std::string& target_name,
                     const std::string& shown, Counted& counted) const;
  Result<void> count_tree(Descriptor target, Counted& counted);
  Result<void> check_source() const;
  Result<void> bring_up_to_date(std::shared_ptr<DirectoryPair> top);
  /// Its caller syncs the directory.
  Result<void> update_directory(const std::shared_ptr<DirectoryPair>& pair, std::vector<Child> children, int top);
  Result<void> check_replaceable(const DirectoryPair& pair, const Child& child, const struct stat& target) const;
  Result<void> look_at_child(const std::shared_ptr<DirectoryPair>& pair, Child& child);
  Result<void> check_kept(const DirectoryPair& pair, Child& child, ListLimit limit);
  Result<void> publish(const DirectoryPair& pair, const OwnFolder& folder, NewEntries& entries, const Child& child,
                       const std::string& built, EntryKind kind);
  Result<void> finish_directory(const WalkLevel& level);
  Result<void> sync(int directory, const std::string& shown) const;

  Work& work_;
  Ends ends_;
  const std::string& secret_;
  const bool whole_;
  const bool replaces_;
};

Result<void> Stage::count(int source, const std::string& name, int target, const std::string& target_name,
                          const std::string& shown, Counted& counted) const {
  struct stat status{};
  {
    const ActingAs acting(work_.source.user);
    if (::fstatat(source, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return changed(work_.source_name(shown));
      return system_error(errno, "cannot look at", work_.source_name(shown));
    }
  }
  if (S_ISDIR(status.st_mode) || S_ISLNK(status.st_mode)) return {};
  if (!S_ISREG(status.st_mode)) return not_stageable(work_.source_name(shown));
  ++counted.items;
  counted.bytes += static_cast<std::uint64_t>(status.st_size);
  struct stat there{};
  const ActingAs acting(work_.target.user);
  // Another file is replaced when the new one is whole, so both take space until then.
  if (target >= 0 && ::fstatat(target, target_name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(there.st_mode) && there.st_size == status.st_size && modified_ns(there) == modified_ns(status))
    return {};
  counted.missing_bytes += space_of(status);
  return {};
}

Result<void> Stage::count_tree(Descriptor target, Counted& counted) {
  TwoTrees walk(work_);
  auto tops = std::make_shared<DirectoryPair>();
  ASSIGN_OR_RETURN(tops->source, open_source_directory(work_, ends_.source.directory.get(), ends_.source.name, ""));
  tops->target = std::move(target);
  RETURN_IF_ERROR(walk.enter(std::move(tops), ""));
  while (!walk.ended()) {
    WalkLevel& level = walk.here();
    if (level.next == level.names.size()) {
      RETURN_IF_ERROR(walk.leave());
      continue;
    }
    RETURN_IF_ERROR(work_.check_not_stopped());
    const std::string name = level.names[level.next++];
    if (is_own_folder_name(name)) continue;
    const std::string path = level.child(name);
    const std::shared_ptr<DirectoryPair> pair = level.pair;
    struct stat status{};
    const bool is_directory = [&] {
      const ActingAs acting(work_.source.user);
      return ::fstatat(pair->source.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
    }();
    if (!is_directory) {
      RETURN_IF_ERROR(count(pair->source.get(), name, pair->target.get(), name, path, counted));
      continue;
    }
    auto next = std::make_shared<DirectoryPair>();
    ASSIGN_OR_RETURN(next->source, open_source_directory(work_, pair->source.get(), name, path));
    if (pair->target.valid()) {
      const ActingAs acting(work_.target.user);
      next->target = open_below(pair->target.get(), name, O_RDONLY | O_DIRECTORY, work_.target.mounts);
    }
    RETURN_IF_ERROR(walk.enter(std::move(next), path));
  }
  return {};
}

Result<void> Stage::plan() {
  Counted counted;
  if (!ends_.source.is_directory) {
    RETURN_IF_ERROR(count(ends_.source.directory.get(), ends_.source.name, ends_.target.directory.get(),
                          ends_.target.name, "", counted));
  } else {
    // What an earlier run has built counts as there.
    Descriptor there;
    const ActingAs acting(work_.target.user);
    constexpr int flags = O_RDONLY | O_DIRECTORY;
    if (ends_.target.tree.valid()) {
      there = open_below(ends_.target.tree.get(), ".", flags, work_.target.mounts);
    } else {
      if (!whole_) there = open_below(ends_.target.directory.get(), ends_.target.name, flags, work_.target.mounts);
      if (!there.valid()) {
        ASSIGN_OR_RETURN(const OwnFolder folder,
                         OwnFolder::find(ends_.target.directory.get(), secret_, work_.target.mounts));
        if (folder.valid()) there = open_below(folder.descriptor(), "e0", flags, Mounts::refused);
      }
    }
    const ActingAs as_process(nullptr);
    RETURN_IF_ERROR(count_tree(std::move(there), counted));
  }
  work_.report.plan(counted.items, counted.bytes, counted.missing_bytes);
  return {};
}

/// What was planned for is what is staged.
Result<void> Stage::check_source() const {
  const ActingAs acting(work_.source.user);
  struct stat status{};
  if (::fstatat(ends_.source.directory.get(), ends_.source.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
      FileIdentity::of(status) != ends_.source.identity || (status.st_mode & S_IFMT) != ends_.source.type)
    return fail(ErrorCode::io_error, "another file or directory has this name now; run the same command again",
                work_.source.text);
  return {};
}

Result<void> Stage::run() {
  RETURN_IF_ERROR(check_source());
  auto pair = std::make_shared<DirectoryPair>();
  if (!ends_.target.tree.valid()) {
    const ActingAs acting(work_.target.user);
    // A tree of that name may be there.
    Descriptor there =
        ends_.source.is_directory && !whole_
            ? open_below(ends_.target.directory.get(), ends_.target.name, O_RDONLY | O_DIRECTORY, work_.target.mounts)
            : Descriptor();
    if (there.valid()) ends_.target.tree = std::move(there);
  }
  if (ends_.target.tree.valid()) {
    ASSIGN_OR_RETURN(pair->source, open_source_directory(work_, ends_.source.directory.get(), ends_.source.name, ""));
    pair->target = std::move(ends_.target.tree);
    RETURN_IF_ERROR(bring_up_to_date(pair));
    // A run that gave it this name may have failed to make that durable.
    if (!ends_.target.directory.valid()) return {};
    const ActingAs acting(work_.target.user);
    const Descriptor holder(::openat(ends_.target.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Who may not read it has made no folder in it.
    if (!holder.valid()) return {};
    ASSIGN_OR_RETURN(OwnFolder left, OwnFolder::find(holder.get(), secret_, work_.target.mounts));
    if (left.valid()) RETURN_IF_ERROR(left.remove(holder.get()));
    return sync(holder.get(), "");
  }
  pair->source = std::move(ends_.source.directory);
  {
    const ActingAs acting(work_.target.user);
    // It was opened for walking only.
    pair->target = Descriptor(::openat(ends_.target.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!pair->target.valid()) return system_error(errno, "cannot open directory", work_.target.text);
  }
  Child child;
  child.source = ends_.source.name;
  child.target = ends_.target.name;
  auto updated = update_directory(pair, {std::move(child)}, pair->target.get());
  if (!updated && !ends_.source.is_directory) {
    // Of one file, no part is worth keeping.
    const ActingAs acting(work_.target.user);
    if (auto folder = OwnFolder::find(pair->target.get(), secret_, work_.target.mounts); folder && folder->valid())
      (void)folder->remove(pair->target.get());
  }
  RETURN_IF_ERROR(updated);
  // Also if nothing had to be done: a run that gave it this name may have failed to make that durable.
  return sync(pair->target.get(), "");
}

Result<void> Stage::bring_up_to_date(std::shared_ptr<DirectoryPair> top) {
  TwoTrees walk(work_);
  const auto enter = [&](std::shared_ptr<DirectoryPair> pair, const std::string& path) -> Result<void> {
    RETURN_IF_ERROR(walk.enter(pair, path));
    struct stat there{};
    const ActingAs acting(work_.target.user);
    // A read-only directory of an earlier run; it becomes so again.
    if (::fstat(pair->target.get(), &there) == 0 && there.st_uid == acting_user() && (there.st_mode & 0300) != 0300)
      (void)::fchmod(pair->target.get(), (there.st_mode & 07777) | 0700);
    std::vector<Child> children;
    for (const std::string& name : walk.here().names) {
      if (is_own_folder_name(name)) {
        work_.report.note("left out, since a stage that was interrupted made it: " + work_.source_name(path));
        continue;
      }
      Child child;
      child.source = child.target = name;
      child.shown = path.empty() ? name : path + "/" + name;
      children.push_back(std::move(child));
    }
    const ActingAs as_process(nullptr);
    return update_directory(pair, std::move(children), top->target.get());
  };
  RETURN_IF_ERROR(enter(top, ""));
  while (!walk.ended()) {
    WalkLevel& level = walk.here();
    if (level.next == level.names.size()) {
      RETURN_IF_ERROR(finish_directory(level));
      RETURN_IF_ERROR(walk.leave());
      continue;
    }
    const std::string name = level.names[level.next++];
    const std::string path = level.child(name);
    const std::shared_ptr<DirectoryPair> pair = level.pair;
    struct stat status{};
    {
      const ActingAs acting(work_.source.user);
      if (is_own_folder_name(name) || ::fstatat(pair->source.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
          !S_ISDIR(status.st_mode))
        continue;
    }
    auto next = std::make_shared<DirectoryPair>();
    {
      const ActingAs acting(work_.target.user);
      next->target = open_below(pair->target.get(), name, O_RDONLY | O_DIRECTORY, work_.target.mounts);
      if (!next->target.valid()) return system_error(errno, "cannot open directory", work_.target_name(path));
    }
    ASSIGN_OR_RETURN(next->source, open_source_directory(work_, pair->source.get(), name, path));
    // One that was built just now is whole, but looking again is all that it costs.
    RETURN_IF_ERROR(enter(std::move(next), path));
  }
  return {};
}

/// A rename would take a device away from all, and whoever reads a pipe would wait for ever. The destination itself may
/// be a link to one, as /dev/stdout is; links below it are entries of the tree.
Result<void> Stage::check_replaceable(const DirectoryPair& pair, const Child& child, const struct stat& target) const {
  struct stat there = target;
  const bool is_link = S_ISLNK(target.st_mode) && child.shown.empty();
  if (is_link && ::fstatat(pair.target.get(), child.target.c_str(), &there, 0) != 0) return {};
  if (S_ISREG(there.st_mode) || S_ISDIR(there.st_mode) || S_ISLNK(there.st_mode)) return {};
  return fail(ErrorCode::invalid_argument,
              "a device, pipe or socket has this name, and is not replaced by a file; name another destination",
              work_.target_name(child.shown));
}

Result<void> Stage::look_at_child(const std::shared_ptr<DirectoryPair>& pair, Child& child) {
  struct stat source{};
  {
    const ActingAs acting(work_.source.user);
    if (::fstatat(pair->source.get(), child.source.c_str(), &source, AT_SYMLINK_NOFOLLOW) != 0)
      return changed(work_.source_name(child.shown));
  }
  const ActingAs acting(work_.target.user);
  struct stat target{};
  if (::fstatat(pair->target.get(), child.target.c_str(), &target, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return system_error(errno, "cannot look at", work_.target_name(child.shown));
    child.is_needed = true;
    return {};
  }
  child.was_there = true;
  RETURN_IF_ERROR(check_replaceable(*pair, child, target));
  if (whole_) {
    if (!replaces_)
      return fail(ErrorCode::already_exists,
                  "something came to have this name while the stage ran; run the same command again",
                  work_.target_name(child.shown));
    child.is_needed = true;
    child.was_directory = S_ISDIR(target.st_mode);
    return {};
  }
  if (S_ISDIR(source.st_mode)) {
    if (S_ISDIR(target.st_mode)) return {};
    return fail(ErrorCode::invalid_argument,
                child.shown.empty() ? "the destination is a file, the source a directory"
                                    : "the source has a directory where the destination has a file",
                work_.target_name(child.shown));
  }
  if (S_ISDIR(target.st_mode))
    return fail(ErrorCode::invalid_argument, "the source has a file where the destination has a directory",
                work_.target_name(child.shown));
  child.is_needed = true;
  if (S_ISLNK(source.st_mode) && S_ISLNK(target.st_mode)) {
    std::array<char, PATH_MAX> first{};
    std::array<char, PATH_MAX> second{};
    const ssize_t there = ::readlinkat(pair->target.get(), child.target.c_str(), second.data(), second.size());
    const ActingAs as_source(work_.source.user);
    const ssize_t wanted = ::readlinkat(pair->source.get(), child.source.c_str(), first.data(), first.size());
    child.is_needed = wanted < 0 || wanted != there || !std::equal(first.data(), first.data() + wanted, second.data());
  } else if (S_ISREG(source.st_mode) && S_ISREG(target.st_mode) && source.st_size == target.st_size &&
             modified_ns(source) == modified_ns(target)) {
    child.may_be_kept = true;
    child.is_later_name = source.st_nlink > 1 && !work_.links.claim(FileIdentity::of(source), child.shown);
  }
  return {};
}

/// Whether the target has the file already, checked by reading both.
Result<void> Stage::check_kept(const DirectoryPair& pair, Child& child, ListLimit limit) {
  ASSIGN_OR_RETURN(const SourceFile source, SourceFile::open(work_, pair.source.get(), child.source, child.shown));
  work_.report.begin(child.shown.empty() ? child.source : child.shown);
  const struct stat& about = source.status().stat;
  Descriptor target;
  struct stat there{};
  {
    const ActingAs acting(work_.target.user);
    target = open_below(pair.target.get(), child.target, O_RDONLY, work_.target.mounts);
    if (!target.valid() || ::fstat(target.get(), &there) != 0 || !S_ISREG(there.st_mode)) return {};
  }
  ASSIGN_OR_RETURN(const std::optional<std::uint32_t> checksum, same_content(work_, source, target.get(), child.shown));
  if (!checksum) return {};
  RETURN_IF_ERROR(source.check_unchanged(work_, child.shown));
  const FileRow row{child.shown, source.size(), modified_ns(about), *checksum};
  if (child.is_later_name) {
    const auto first = work_.links.find(FileIdentity::of(about));
    // Else it is to become another name of what the first one is.
    if (!first || first->target != FileIdentity::of(there)) return {};
  } else if (about.st_nlink > 1) {
    work_.links.put(FileIdentity::of(about), {child.shown, true, FileIdentity::of(there), row});
  }
  if ((there.st_mode & 07777) != limit.of_mode(source.status().mode) || !source.status().attributes.empty() ||
      !source.status().lists.empty()) {
    const ActingAs acting(work_.owner.user || work_.owner.group ? nullptr : work_.target.user);
    ASSIGN_OR_RETURN(const std::vector<NotKept> lacking,
                     set_status(target.get(), source.status(), limit, {}, work_.target_name(child.shown)));
    for (const NotKept what : lacking) work_.report.not_kept(what, child.shown);
  }
  work_.report.advance(source.size());
  work_.report.finished(true);
  child.kept = row;
  child.is_needed = false;
  return {};
}

Result<void> Stage::update_directory(const std::shared_ptr<DirectoryPair>& pair, std::vector<Child> children, int top) {
  const ListLimit limit = ListLimit::of(pair->target.get());
  for (Child& child : children) RETURN_IF_ERROR(look_at_child(pair, child));
  // First names first: the others are compared with them.
  for (const bool later_names : {false, true}) {
    for (Child& child : children)
      if (child.may_be_kept && child.is_later_name == later_names)
        work_.pool.submit([this, pair, &child, limit] { return check_kept(*pair, child, limit); });
    RETURN_IF_ERROR(work_.pool.wait());
  }
  for (const Child& child : children)
    if (child.kept) work_.report.row(*child.kept);
  const bool needs = std::any_of(children.begin(), children.end(), [](const Child& child) { return child.is_needed; });
  OwnFolder folder;
  {
    const ActingAs acting(work_.target.user);
    auto opened = needs ? OwnFolder::open(pair->target.get(), secret_, work_.target.mounts)
                        : OwnFolder::find(pair->target.get(), secret_, work_.target.mounts);
    if (!opened) {
      if (opened.error().where.empty()) opened.error().where = work_.target.text;
      return fail(opened.error());
    }
    folder = *std::move(opened);
  }
  if (needs) {
    NewEntries entries(work_, folder, top);
    struct Built {
      const Child* child;
      std::string name;
      EntryKind kind;
    };
    std::vector<Built> built;
    for (std::size_t number = 0; number < children.size(); ++number) {
      const Child& child = children[number];
      if (!child.is_needed) continue;
      std::string name = "e" + std::to_string(number);
      ASSIGN_OR_RETURN(const EntryKind kind, entries.add(pair, child.source, name, child.shown));
      built.push_back({&child, std::move(name), kind});
    }
    RETURN_IF_ERROR(entries.finish());
    work_.report.built();
    RETURN_IF_ERROR(work_.confirm());
    for (const Built& one : built) RETURN_IF_ERROR(publish(*pair, folder, entries, *one.child, one.name, one.kind));
  }
  if (!folder.valid()) return {};
  const ActingAs acting(work_.target.user);
  return folder.remove(pair->target.get());
}

Result<void> Stage::publish(const DirectoryPair& pair, const OwnFolder& folder, NewEntries& entries, const Child& child,
                            const std::string& built, EntryKind kind) {
  const std::string where = work_.target_name(child.shown);
  {
    const ActingAs acting(work_.target.user);
    if (child.was_there && whole_)
      RETURN_IF_ERROR(
          place_instead(folder.descriptor(), built, pair.target.get(), child.target, kind, child.was_directory, where));
    else if (child.was_there)
      RETURN_IF_ERROR(place_over(folder.descriptor(), built, pair.target.get(), child.target, where));
    else
      RETURN_IF_ERROR(place_new(folder.descriptor(), built, pair.target.get(), child.target, kind, where));
  }
  work_.links.published(built, child.shown);
  const auto late = entries.late_modes().find(built);
  if (late == entries.late_modes().end()) return {};
  const ActingAs acting(work_.owner.user || work_.owner.group ? nullptr : work_.target.user);
  ASSIGN_OR_RETURN(const std::vector<NotKept> lacking,
                   set_status(late->second.directory.get(), late->second.status, ListLimit::of(pair.target.get()),
                              work_.owner, where));
  for (const NotKept what : lacking) work_.report.not_kept(what, child.shown);
  return sync(late->second.directory.get(), child.shown);
}

Result<void> Stage::finish_directory(const WalkLevel& level) {
  Status status;
  {
    const ActingAs acting(work_.source.user);
    ASSIGN_OR_RETURN(status, read_status(level.pair->source.get(), work_.carries_lists, work_.source_name(level.path)));
  }
  {
    const ActingAs acting(work_.owner.user || work_.owner.group ? nullptr : work_.target.user);
    // A directory that was made here has the default list of its place.
    ASSIGN_OR_RETURN(const std::vector<NotKept> lacking,
                     set_status(level.pair->target.get(), status, ListLimit::of(level.pair->target.get()), {},
                                work_.target_name(level.path)));
    for (const NotKept what : lacking) work_.report.not_kept(what, level.path);
  }
  return sync(level.pair->target.get(), level.path);
}

Result<void> Stage::sync(int directory, const std::string& shown) const {
  // File systems that keep nothing may not know such a sync.
  if (::fsync(directory) != 0 && errno != EINVAL && errno != EROFS && errno != EOPNOTSUPP)
    return system_error(errno, "cannot sync", work_.target_name(shown));
  return {};
}

Result<std::uint32_t> number_of(std::string_view text) {
  std::uint32_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number == UINT32_MAX)
    return fail(ErrorCode::invalid_argument, "this is no number of a user or group", std::string(text.substr(0, 40)));
  return number;
}

}  // namespace

Result<Request> Request::parse(std::string_view text) {
  Request request;
  FileSystemUser inside;
  bool has_inside_user = false;
  while (!text.empty()) {
    const std::size_t end = text.find('\0');
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::size_t equals = field.find('=');
    if (equals == std::string_view::npos)
      return fail(ErrorCode::invalid_argument, "a request has KEY=VALUE texts, and this is none",
                  std::string(field.substr(0, 40)));
    const std::string_view key = field.substr(0, equals);
    std::string value(field.substr(equals + 1));
    if (key == "inside") {
      request.inside = std::move(value);
    } else if (key == "path") {
      request.path = std::move(value);
    } else if (key == "outside") {
      request.outside = std::move(value);
    } else if (key == "name") {
      request.name = std::move(value);
    } else if (key == "secret") {
      request.secret = std::move(value);
    } else if (key == "inward") {
      request.inward = value == "1";
    } else if (key == "only") {
      request.only = std::move(value);
    } else if (key == "whole") {
      request.whole = value == "1";
    } else if (key == "replaces") {
      request.replaces = value == "1";
    } else if (key == "must_know_writers") {
      request.must_know_writers = value == "1";
    } else if (key == "wait_closed_ms") {
      ASSIGN_OR_RETURN(request.wait_closed_ms, number_of(value));
    } else if (key == "acls") {
      request.carries_lists = value == "1";
    } else if (key == "owner") {
      ASSIGN_OR_RETURN(request.owner, number_of(value));
    } else if (key == "group") {
      ASSIGN_OR_RETURN(request.group, number_of(value));
    } else if (key == "inside_user") {
      ASSIGN_OR_RETURN(inside.user, number_of(value));
      has_inside_user = true;
    } else if (key == "inside_group") {
      ASSIGN_OR_RETURN(inside.group, number_of(value));
    } else if (key == "inside_groups") {
      std::string_view left = value;
      while (!left.empty()) {
        const std::size_t comma = left.find(',');
        ASSIGN_OR_RETURN(const gid_t group, number_of(left.substr(0, comma)));
        inside.groups.push_back(group);
        left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
      }
    } else {
      return fail(ErrorCode::invalid_argument, "a request has no such key", std::string(key.substr(0, 40)));
    }
  }
  if (has_inside_user) request.inside_user = std::move(inside);
  if (!request.inside.starts_with('/') || !request.outside.starts_with('/'))
    return fail(ErrorCode::invalid_argument, "both ends of a stage have absolute paths", request.outside);
  if (request.secret.size() != 64)
    return fail(ErrorCode::invalid_argument, "a stage's secret has 64 hexadecimal digits");
  return request;
}

Result<Summary> stage(const Request& request, Report& report, const std::function<Result<void>()>& confirm,
                      const std::atomic<bool>& stopping) {
  WorkerPool pool(threads());
  const FileSystemUser* inside = request.inside_user ? &*request.inside_user : nullptr;
  End inside_end{inside, Mounts::refused, {}};
  End outside_end{nullptr, Mounts::crossed, {}};
  Work work{report,
            pool,
            stopping,
            request.inward ? outside_end : inside_end,
            request.inward ? inside_end : outside_end,
            {},
            request.carries_lists,
            confirm,
            {},
            request.must_know_writers,
            {}};
  if (request.wait_closed_ms > 0)
    work.closed_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(request.wait_closed_ms);
  if (!request.inward) work.owner = {request.owner, request.group};
  ASSIGN_OR_RETURN(Ends ends, open_ends(request, work));
  // Modes are the source's; the directories above the target have got theirs.
  ::umask(0);
  Stage staging(work, std::move(ends), request);
  RETURN_IF_ERROR(staging.plan());
  RETURN_IF_ERROR(confirm());
  RETURN_IF_ERROR(staging.run());
  return Summary{work.source.text, work.target.text, report.items_done(), staging.copied(), report.lacking()};
}

}  // namespace forebay::mover
