// SPDX-License-Identifier: Apache-2.0
// A walk through a tree that users write to, whatever they do to it meanwhile. It works on descriptors, follows no
// link, enters no mount, asks nothing of what is mounted, and goes on in slices, so that others get their turn between
// them.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "base/descriptor.h"
#include "base/open_below.h"

namespace forebay::storage {

class TreeWalk;

/// What a walk tells of what it meets.
class TreeVisitor {
 public:
  /// What of a folder is visited: nothing, the folders in it, or all.
  enum class Enter : std::uint8_t { nothing, folders, all };

  virtual ~TreeVisitor() = default;
  /// A folder, first the top, opened by O_PATH. `above`: how the one that holds it was entered.
  virtual Enter folder(const TreeWalk& walk, const std::string& name, int descriptor, const struct stat& status,
                       Enter above) = 0;
  /// Something else, in a folder of which all is visited. A link is itself.
  virtual void entry(const TreeWalk& walk, int parent, const char* name, const struct statx& status) = 0;
  /// What folder() has told of is visited from here on.
  virtual void entered() {}
  /// It is done with all that is below.
  virtual void left() {}
  /// All in the folder at this depth is visited again, because somebody has moved what the walk was in.
  virtual void begins_again(std::size_t) {}
  /// This one, with all below, was not visited.
  virtual void missed(const TreeWalk& walk, const std::string& name, Error why) = 0;
};

class TreeWalk {
 public:
  /// Descriptors that a walk holds at most.
  static constexpr std::size_t descriptors_max = 40;
  static constexpr std::size_t depth_max = 100'000;
  /// So often it begins again; then it ends, and tells of what is not visited.
  static constexpr unsigned begins_again_max = 64;

  /// Through all below `top`, which is a directory; people see it as `shown`. `visitor` outlives the walk.
  TreeWalk(Descriptor top, std::string shown, TreeVisitor& visitor);

  /// Looks at some `entries_max` entries. True if nothing is left.
  bool advance(std::size_t entries_max);

  /// How many folders lie above what is visited; 0: the top is.
  std::size_t depth() const noexcept { return levels_.size(); }
  /// The path of an entry of the folder that is visited, for people: shortened, as plain text.
  std::string place(const std::string& name) const;
  /// Descriptors that it holds.
  std::size_t descriptors() const noexcept;

 private:
  /// Entries of a folder as the kernel has told them.
  struct Entries {
    std::vector<char> bytes;
    std::size_t used = 0;
    std::size_t position = 0;
  };
  struct Level {
    std::string name;
    FileIdentity identity;
    TreeVisitor::Enter enter = TreeVisitor::Enter::all;
    Descriptor descriptor;             ///< not valid if the way up finds it again
    std::int64_t offset = 0;           ///< where the folder's next entry is
    std::unique_ptr<Entries> entries;  ///< what has been read of it
  };

  void enter(const std::string& name, const Descriptor& folder);
  void look_at(const char* name, bool may_be_folder);
  /// The next entry of the lowest folder; null at its end.
  const struct DirectoryEntry* next();
  void leave();
  void begin_again();
  void release_middle();
  bool is_elsewhere(const struct statx& status) const noexcept;

  TreeVisitor& visitor_;
  Descriptor top_;
  std::string shown_;
  dev_t device_ = 0;
  std::uint64_t mount_ = 0;
  std::vector<Level> levels_;
  std::size_t stride_ = 1;  ///< of the levels far above the lowest, every so manieth keeps its descriptor
  unsigned begun_again_ = 0;
  bool begun_ = false;
};

}  // namespace forebay::storage
