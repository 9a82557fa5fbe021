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
  std::map<std::uint32_t, Bits> users;
  std::map<std::uint32_t, Bits> groups;

  /// False if the file system of `path` has no access lists.
  static Result<bool> supported(const std::string& path);
  /// The list of an open file: nothing where it has mode bits only.
  static Result<std::optional<AccessList>> read(int descriptor, Kind kind);
  static AccessList of_mode(mode_t mode);
  /// The mask allows what any entry does.
  Result<void> write(int descriptor, Kind kind) const;
};

}  // namespace forebay::storage
