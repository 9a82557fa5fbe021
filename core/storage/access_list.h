// SPDX-License-Identifier: Apache-2.0
// A POSIX access list, as the kernel keeps it in an extended attribute of a file or a directory.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <forebay/result.h>

namespace forebay::storage {

struct AccessList {
  /// Which of a file's lists: its own, or what a directory gives to what is made in it.
  enum class Kind : std::uint8_t { access, by_default };
  using Bits = std::uint16_t;  ///< 4: read, 2: write, 1: execute or enter

  Bits owner = 0;
  Bits group = 0;
  Bits other = 0;
  std::optional<Bits> mask;  ///< what the group's entry and those of users and groups allow at most; unset: all
  std::map<std::uint32_t, Bits> users;
  std::map<std::uint32_t, Bits> groups;

  bool operator==(const AccessList&) const = default;

  /// False if the file system of `path` has no access lists.
  static Result<bool> supported(const std::string& path);
  /// The list of what an open descriptor names, which may be one of O_PATH: nothing is opened, so neither a lease nor a
  /// FIFO is in the way. Nothing where it has mode bits only.
  static Result<std::optional<AccessList>> read(int descriptor, Kind kind);
  /// What the bits say. Its mask is theirs for the group, so that entries which are added give no more than they do.
  static AccessList of_mode(mode_t mode);
  Result<void> write(int descriptor, Kind kind) const;
};

}  // namespace forebay::storage
