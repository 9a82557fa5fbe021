// SPDX-License-Identifier: Apache-2.0
#include "mover/two_trees.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "base/return_error.h"
#include "base/system_error.h"
#include "mover/own_folder.h"

namespace forebay::mover {
namespace {

constexpr int directory_flags = O_RDONLY | O_DIRECTORY;

}  // namespace

Result<void> TwoTrees::enter(std::shared_ptr<DirectoryPair> pair, std::string path) {
  WalkLevel level;
  const std::string where = work_.source_name(path);
  {
    const ActingAs acting(work_.source.user);
    ASSIGN_OR_RETURN(const struct stat source, look_at(pair->source.get(), where));
    level.source = FileIdentity::of(source);
    ASSIGN_OR_RETURN(level.names, names_in(pair->source.get(), where));
  }
  if (pair->target.valid()) {
    ASSIGN_OR_RETURN(const struct stat target, look_at(pair->target.get(), work_.target_name(path)));
    level.target = FileIdentity::of(target);
    level.has_target = true;
  }
  level.pair = std::move(pair);
  level.path = std::move(path);
  levels_.push_back(std::move(level));
  // The tops stay open: everything else is opened below them.
  if (levels_.size() > open_max + 1) levels_[levels_.size() - open_max].pair.reset();
  return {};
}

Result<void> TwoTrees::leave() {
  levels_.pop_back();
  if (!levels_.empty() && levels_.back().pair == nullptr) return reopen(levels_.back());
  return {};
}

Result<void> TwoTrees::reopen(WalkLevel& level) {
  const auto tops = levels_.front().pair;
  auto pair = std::make_shared<DirectoryPair>();
  {
    const ActingAs acting(work_.source.user);
    pair->source = open_below(tops->source.get(), level.path, directory_flags, work_.source.mounts);
    struct stat status{};
    if (!pair->source.valid() || ::fstat(pair->source.get(), &status) != 0 || FileIdentity::of(status) != level.source)
      return fail(ErrorCode::io_error, "this directory was moved while it was being staged; run the same command again",
                  work_.source_name(level.path));
  }
  if (level.has_target) {
    const ActingAs acting(work_.target.user);
    pair->target = open_below(tops->target.get(), level.path, directory_flags, work_.target.mounts);
    struct stat status{};
    if (!pair->target.valid() || ::fstat(pair->target.get(), &status) != 0 || FileIdentity::of(status) != level.target)
      return fail(ErrorCode::io_error,
                  "this directory was moved while it was being written; run the same command again",
                  work_.target_name(level.path));
  }
  level.pair = std::move(pair);
  return {};
}

Result<Descriptor> open_source_directory(Work& work, int parent, const std::string& name, const std::string& shown) {
  const ActingAs acting(work.source.user);
  Descriptor opened = open_below(parent, name, directory_flags, work.source.mounts);
  if (opened.valid()) return opened;
  const std::string where = work.source_name(shown);
  if (errno == EXDEV)
    return fail(ErrorCode::permission_denied, "another file system is mounted there, inside the reservation's files",
                where);
  if (errno == ELOOP || errno == ENOTDIR || errno == ENOENT)
    return fail(ErrorCode::io_error, "this directory was moved while it was being staged; run the same command again",
                where);
  return system_error(errno, "cannot open directory", where);
}

}  // namespace forebay::mover
