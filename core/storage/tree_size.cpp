// SPDX-License-Identifier: Apache-2.0
#include "storage/tree_size.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "base/descriptor.h"
#include "base/system_error.h"

namespace forebay::storage {
namespace {

constexpr std::uint64_t stat_block_bytes = 512;  // the unit of st_blocks, whatever the file system's own is
// Of more files with several names each name counts: never less than there is.
constexpr std::size_t linked_max = std::size_t{1} << 20;

}  // namespace

void TreeMeasure::entry(const TreeWalk&, int, const char*, const struct statx& status) {
  if (!S_ISREG(status.stx_mode)) return;
  if (status.stx_nlink > 1 && linked_.size() < linked_max) {
    const auto [place, is_new] = linked_.insert({status.stx_dev_major, status.stx_dev_minor, status.stx_ino});
    if (!is_new) return;
    linked_order_.push_back(place);
  }
  size_.bytes += status.stx_blocks * stat_block_bytes;
}

void TreeMeasure::begins_again(std::size_t depth) {
  // What was counted in there is counted anew.
  levels_.resize(depth + 1);
  size_.bytes = levels_.back().bytes_before;
  for (; linked_order_.size() > levels_.back().linked_before; linked_order_.pop_back())
    linked_.erase(linked_order_.back());
}

void TreeMeasure::missed(const TreeWalk& walk, const std::string& name, Error why) {
  if (size_.missed++ == 0) size_.first_missed = walk.place(name) + ": " + why.what;
}

Result<TreeSize> measure_tree(const std::string& path, const std::string& shown) {
  Descriptor top(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top.valid()) return system_error(errno, "cannot open directory", path);
  TreeMeasure measure;
  TreeWalk walk(std::move(top), shown, measure);
  while (!walk.advance(std::numeric_limits<std::size_t>::max())) {
  }
  return measure.size();
}

}  // namespace forebay::storage
