// SPDX-License-Identifier: Apache-2.0
#include "mover/ends.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::mover {
namespace {

/// Walks of one end, each from its beginning.
class EndWalks {
 public:
  EndWalks(const Request& request, bool is_inside) : request_(request), is_inside_(is_inside) {}

  Result<NameWalk> begin() const {
    if (!is_inside_) return NameWalk::from_top(trusted());
    ASSIGN_OR_RETURN(NameWalk walk, NameWalk::from_top({.any = true}));
    RETURN_IF_ERROR(walk.enter(request_.inside));
    walk.confine({.none = true});
    return walk;
  }
  /// For the last component of a name, which may be a link of whom the stage runs as.
  static LinkRule trusted() { return {.trusted = acting_user()}; }
  const std::string& path() const { return is_inside_ ? request_.path : request_.outside; }

 private:
  const Request& request_;
  const bool is_inside_;
};

Result<Descriptor> opened_again(int directory, const std::string& where) {
  Descriptor copy(::fcntl(directory, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return system_error(errno, "cannot open", where);
  return copy;
}

tl::unexpected<Error> no_source(const std::string& where) {
  return fail(ErrorCode::not_found, "there is no such file or directory to stage", where);
}

/// InvalidArgument if the source is not of the kind that the stage takes.
Result<void> check_kind(const std::string& only, mode_t type, const std::string& where) {
  if (only == "directory" && type != S_IFDIR)
    return fail(ErrorCode::invalid_argument, "type=directory, and the source is a file; write type=file", where);
  if (only == "file" && type != S_IFREG)
    return fail(ErrorCode::invalid_argument,
                std::string("type=file, and the source is ") +
                    (type == S_IFDIR ? "a directory; write type=directory" : "no regular file"),
                where);
  return {};
}

Result<SourceEnd> open_source(const EndWalks& walks, const Request& request, Work& work) {
  const ActingAs acting(work.source.user);
  SourceEnd source;
  ASSIGN_OR_RETURN(NameWalk walk, walks.begin());
  const SplitName split = split_name(walks.path());
  const auto enter = [&](std::string_view path) -> Result<void> {
    auto entered = walk.enter(path);
    if (!entered && entered.error().code == ErrorCode::not_found) return no_source(entered.error().where);
    return entered;
  };
  RETURN_IF_ERROR(enter(split.parent));
  source.base_name = split.last;
  source.name = split.last;
  if (split.asks_for_content && !split.last.empty()) {
    walk.set_rule(EndWalks::trusted());
    RETURN_IF_ERROR(enter(split.last));
    source.name.clear();
  } else if (!request.only.empty() && !split.last.empty()) {
    walk.set_rule(EndWalks::trusted());
    auto found = walk.find(split.last);
    if (!found && found.error().code == ErrorCode::not_found) return no_source(found.error().where);
    ASSIGN_OR_RETURN(source.name, std::move(found));
  }
  work.source.text = walk.text();
  if (source.name.empty()) {
    source.name = ".";
    if (source.base_name.empty()) source.base_name = walks.path().empty() ? request.name : split_name(walk.text()).last;
  } else {
    work.source.text += (work.source.text == "/" ? "" : "/") + source.name;
  }
  ASSIGN_OR_RETURN(source.directory, opened_again(walk.directory(), work.source.text));
  source.above = walk.identities();
  struct stat status{};
  if (::fstatat(source.directory.get(), source.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return no_source(work.source.text);
    return system_error(errno, "cannot look at", work.source.text);
  }
  source.is_directory = S_ISDIR(status.st_mode);
  source.type = status.st_mode & S_IFMT;
  if (!request.only.empty()) RETURN_IF_ERROR(check_kind(request.only, source.type, work.source.text));
  source.identity = FileIdentity::of(status);
  return source;
}

Result<void> sync_made(NameWalk& walk) {
  for (const Descriptor& made : walk.take_made()) {
    // File systems that keep nothing may not know such a sync.
    if (::fsync(made.get()) != 0 && errno != EINVAL && errno != EROFS && errno != EOPNOTSUPP)
      return system_error(errno, "cannot sync a directory above the destination", walk.text());
  }
  return {};
}

/// The directory itself is the target of a directory, and gets a file.
Result<TargetEnd> into_or_onto(NameWalk& walk, const SourceEnd& source, Work& work) {
  TargetEnd target;
  work.target.text = walk.text();
  target.above = walk.identities();
  if (source.is_directory) {
    target.tree = Descriptor(::openat(walk.directory(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!target.tree.valid()) return system_error(errno, "cannot open directory", work.target.text);
    return target;
  }
  target.name = source.base_name;
  work.target.text += (work.target.text == "/" ? "" : "/") + target.name;
  ASSIGN_OR_RETURN(target.directory, opened_again(walk.directory(), work.target.text));
  return target;
}

Result<TargetEnd> entry_of(NameWalk& walk, std::string name, Work& work) {
  TargetEnd target;
  target.name = std::move(name);
  work.target.text = walk.text();
  work.target.text += (work.target.text == "/" ? "" : "/") + target.name;
  target.above = walk.identities();
  ASSIGN_OR_RETURN(target.directory, opened_again(walk.directory(), work.target.text));
  return target;
}

Result<TargetEnd> open_target(const EndWalks& walks, const Request& request, const SourceEnd& source, Work& work) {
  const bool is_inside = request.inward;
  const ActingAs acting(work.target.user);
  const SplitName split = split_name(walks.path());
  ASSIGN_OR_RETURN(NameWalk walk, walks.begin());
  RETURN_IF_ERROR(walk.enter(split.parent, true));
  if (split.asks_for_content || (is_inside && walks.path().empty())) {
    // A folder to copy into.
    walk.set_rule(EndWalks::trusted());
    if (!split.last.empty()) RETURN_IF_ERROR(walk.enter(split.last, true));
    RETURN_IF_ERROR(sync_made(walk));
    return entry_of(walk, source.base_name, work);
  }
  RETURN_IF_ERROR(sync_made(walk));
  if (split.last.empty()) return into_or_onto(walk, source, work);
  struct stat status{};
  if (::fstatat(walk.directory(), split.last.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return system_error(errno, "cannot look at", walk.text() + "/" + split.last);
    return entry_of(walk, split.last, work);
  }
  if (request.whole) {
    if (!request.replaces)
      return fail(ErrorCode::already_exists,
                  "the destination has this name, and it was not staged from here; choose another destination, or "
                  "allow it with --replace",
                  walk.text() + "/" + split.last);
    return entry_of(walk, split.last, work);
  }
  // A tree that is there is opened from the directory that holds it.
  if (!S_ISLNK(status.st_mode) && (!S_ISDIR(status.st_mode) || source.is_directory))
    return entry_of(walk, split.last, work);
  walk.set_rule(EndWalks::trusted());
  const auto entered = walk.enter(split.last);
  if (entered) return into_or_onto(walk, source, work);
  // A link that leads to no directory is an entry like a file.
  const bool is_other = S_ISLNK(status.st_mode) && (entered.error().code == ErrorCode::not_found ||
                                                    entered.error().what.starts_with("this is a file"));
  if (!is_other) return fail(entered.error());
  ASSIGN_OR_RETURN(NameWalk again, walks.begin());
  RETURN_IF_ERROR(again.enter(split.parent));
  return entry_of(again, split.last, work);
}

bool contains(const std::vector<FileIdentity>& found, FileIdentity wanted) {
  return std::find(found.begin(), found.end(), wanted) != found.end();
}

Result<void> refuse_overlap(const Ends& ends, const Work& work) {
  const auto overlap = [&] {
    return fail(ErrorCode::invalid_argument, "one of source and destination contains the other",
                work.source.text + ", " + work.target.text);
  };
  if (ends.source.is_directory && contains(ends.target.above, ends.source.identity)) return overlap();
  struct stat status{};
  FileIdentity there;
  if (ends.target.tree.valid()) {
    if (::fstat(ends.target.tree.get(), &status) != 0) return system_error(errno, "cannot look at", work.target.text);
    there = FileIdentity::of(status);
  } else if (::fstatat(ends.target.directory.get(), ends.target.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    // Another name of the same file is no overlap: it gets a copy.
    if (!S_ISDIR(status.st_mode) &&
        (FileIdentity::of(status) != ends.source.identity || work.source.text != work.target.text))
      return {};
    there = FileIdentity::of(status);
  } else {
    return {};
  }
  if (there == ends.source.identity || contains(ends.source.above, there)) return overlap();
  return {};
}

}  // namespace

Result<Ends> open_ends(const Request& request, Work& work) {
  const EndWalks inside(request, true);
  const EndWalks outside(request, false);
  Ends ends;
  ASSIGN_OR_RETURN(ends.source, open_source(request.inward ? outside : inside, request, work));
  ASSIGN_OR_RETURN(ends.target, open_target(request.inward ? inside : outside, request, ends.source, work));
  RETURN_IF_ERROR(refuse_overlap(ends, work));
  return ends;
}

}  // namespace forebay::mover
