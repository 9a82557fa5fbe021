// SPDX-License-Identifier: Apache-2.0
// The folder that the mover makes in the directory that is to get an entry. What it builds there nobody else can reach;
// a later run of the same stage knows it again by the secret in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/result.h>

#include "base/descriptor.h"
#include "mover/name_walk.h"

namespace forebay::mover {

/// Begins the folder's name; eight hexadecimal digits follow.
inline constexpr std::string_view own_folder_prefix = ".forebay-incoming-";
bool is_own_folder_name(std::string_view name) noexcept;

class OwnFolder {
 public:
  /// Makes one in `directory`, or finds the one that an earlier run with this secret left there.
  ///
  /// busy: another process of the same stage works in it. refused: all names are taken by what is not ours.
  static Result<OwnFolder> open(int directory, std::string_view secret, Mounts mounts);
  /// The one that an earlier run left; not valid() if there is none.
  static Result<OwnFolder> find(int directory, std::string_view secret, Mounts mounts);

  bool valid() const noexcept { return folder_.valid(); }
  int descriptor() const noexcept { return folder_.get(); }
  const std::string& name() const noexcept { return name_; }
  /// True if an earlier run made it.
  bool found() const noexcept { return found_; }

  /// Removes it with all that is in it. `directory` is where it was opened.
  Result<void> remove(int directory);

 private:
  static Result<OwnFolder> look(int directory, std::string_view secret, Mounts mounts, bool make);
  Result<bool> take(int directory, std::string_view secret, Mounts mounts, bool make);

  Descriptor folder_;
  Descriptor secret_;
  std::string name_;
  bool found_ = false;
};

/// Removes a file, or a directory with all that it holds, by descriptors: no link is followed, no other mount entered.
/// It may be gone already.
Result<void> remove_entry(int directory, const std::string& name, const std::string& where);

/// Names in a directory without "." and "..", sorted.
Result<std::vector<std::string>> names_in(int directory, const std::string& where);

}  // namespace forebay::mover
