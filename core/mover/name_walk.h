// SPDX-License-Identifier: Apache-2.0
// How the mover follows a name that a user gave while others may rename what it names: through no link that it did not
// look at. docs/design/file-mover.md has the rules.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/result.h>

#include "base/descriptor.h"
#include "base/open_below.h"

namespace forebay::mover {

/// Whose links a walk may pass.
struct LinkRule {
  bool any = false;           ///< anybody's: only for names that no user gave
  bool none = false;          ///< nobody's
  std::uint32_t trusted = 0;  ///< this user's and root's
};

/// A walk along a name that a user gave, one component after the other. It knows the directories that it is in.
class NameWalk {
 public:
  /// Begins at `/`.
  static Result<NameWalk> from_top(LinkRule rule);

  /// From here on nothing may lead out of the directory where the walk is, to another mount, or through a link that the
  /// rule does not allow.
  void confine(LinkRule rule);
  void set_rule(LinkRule rule) { rule_ = rule; }

  /// Enters each component of `path`, which may be absolute if the walk is not confined. With `make`, directories that
  /// are not there are made, with mode 0777 less the process's umask.
  ///
  /// not_found, invalid_argument (it leads out, or through what is no directory), permission_denied (another's link).
  Result<void> enter(std::string_view path, bool make = false);

  /// The entry that `name` stands for: itself, or what a link leads to, whose directory the walk enters. Empty: the
  /// directory where the walk is then.
  Result<std::string> find(std::string name);

  /// Where it is, opened with O_PATH.
  int directory() const noexcept { return levels_.back().descriptor.get(); }
  /// All directories from the top to where it is.
  std::vector<FileIdentity> identities() const;
  /// Where it is, as text without links.
  std::string text() const;
  /// Directories that were made, the highest first, and the one that holds it: to be synced.
  std::vector<Descriptor> take_made() { return std::move(made_); }

 private:
  struct Level {
    Descriptor descriptor;
    FileIdentity identity;
    std::string name;
  };
  Result<void> step(std::string name, std::vector<std::string>& pending, bool make);
  Result<void> pass_link(int link, const struct stat& status, const std::string& name,
                         std::vector<std::string>& pending);
  Result<void> push(Descriptor descriptor, std::string name);
  std::string place(const std::string& name) const;

  std::vector<Level> levels_;
  std::vector<Descriptor> made_;
  LinkRule rule_;
  std::size_t floor_ = 0;  ///< `..` leads no higher than this level
  bool confined_ = false;
  int links_left_ = 40;
};

/// An absolute or relative name in two: the directory's part and the last component, without slashes at the end.
struct SplitName {
  std::string parent;
  std::string last;
  bool asks_for_content = false;  ///< it ended with a slash
};
SplitName split_name(std::string_view path);

}  // namespace forebay::mover
