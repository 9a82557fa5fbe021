// SPDX-License-Identifier: Apache-2.0
// What a tree that users write to takes on its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <forebay/result.h>

#include "storage/tree_walk.h"

namespace forebay::storage {

/// What the regular files of a tree take.
struct TreeSize {
  std::uint64_t bytes = 0;   ///< on the device; of files with several names once
  std::uint64_t missed = 0;  ///< entries that could not be looked at, with all below them
  std::string first_missed;  ///< one of these, and why
};

/// Adds it up.
class TreeMeasure final : public TreeVisitor {
 public:
  const TreeSize& size() const noexcept { return size_; }

  Enter folder(const TreeWalk&, const std::string&, int, const struct stat&, Enter) override { return Enter::all; }
  void entry(const TreeWalk& walk, int parent, const char* name, const struct statx& status) override;
  void entered() override { levels_.push_back({size_.bytes, linked_order_.size()}); }
  void left() override { levels_.pop_back(); }
  void begins_again(std::size_t depth) override;
  void missed(const TreeWalk& walk, const std::string& name, Error why) override;

 private:
  using Linked = std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>>;
  struct Level {
    std::uint64_t bytes_before = 0;
    std::size_t linked_before = 0;
  };

  TreeSize size_;
  std::vector<Level> levels_;
  Linked linked_;
  std::vector<Linked::iterator> linked_order_;
};

/// Walks through all below `path`, however deep. Another file system mounted inside counts as missed. `shown` stands
/// for the path in what people see.
Result<TreeSize> measure_tree(const std::string& path, const std::string& shown);

}  // namespace forebay::storage
