// SPDX-License-Identifier: Apache-2.0
// A walk down two trees at once, by descriptors. However deep they are, a bounded number is open: those further up are
// opened again on the way back, and must be the same directories still.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "mover/name_walk.h"
#include "mover/work.h"

namespace forebay::mover {

struct WalkLevel {
  std::shared_ptr<DirectoryPair> pair;  ///< null while it is closed; its target may be missing
  std::string path;                     ///< below the tops of the walk; empty: the tops
  std::vector<std::string> names;       ///< of the source, sorted
  std::size_t next = 0;
  FileIdentity source;
  FileIdentity target;
  bool has_target = false;

  std::string child(const std::string& name) const { return path.empty() ? name : path + "/" + name; }
};

class TwoTrees {
 public:
  explicit TwoTrees(Work& work) : work_(work) {}

  /// Enters the tops, or a directory below where the walk is. `path` is that of the pair below the tops.
  Result<void> enter(std::shared_ptr<DirectoryPair> pair, std::string path);
  /// Leaves the directory where the walk is.
  Result<void> leave();
  WalkLevel& here() noexcept { return levels_.back(); }
  bool ended() const noexcept { return levels_.empty(); }

 private:
  static constexpr std::size_t open_max = 64;
  Result<void> reopen(WalkLevel& level);

  Work& work_;
  std::vector<WalkLevel> levels_;
};

/// Opens a directory of the source for reading.
Result<Descriptor> open_source_directory(Work& work, int parent, const std::string& name, const std::string& shown);

}  // namespace forebay::mover
