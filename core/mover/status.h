// SPDX-License-Identifier: Apache-2.0
// What is kept of a file or a directory beside its content: mode, times, attributes of users. All by descriptors.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <forebay/result.h>

namespace forebay::mover {

using Attribute = std::pair<std::string, std::string>;

struct Status {
  struct stat stat{};
  /// The mode's bits without those of set-user-id and set-group-id; the group's are its list's entry and the mask.
  mode_t mode = 0;
  std::vector<Attribute> attributes;  ///< user.*
  std::vector<Attribute> lists;       ///< access lists, only if they are to be carried
};

/// What is kept of an open file or directory.
Result<Status> read_status(int descriptor, bool with_lists, const std::string& where);
/// The same, of which only fstat() is to be asked.
Result<struct stat> look_at(int descriptor, const std::string& where);
std::int64_t modified_ns(const struct stat& status) noexcept;

/// What a directory's default list allows at most to what is made in it.
struct ListLimit {
  mode_t allowed = 07777;
  static ListLimit of(int directory);
  mode_t of_mode(mode_t mode) const noexcept { return mode & allowed; }
};

/// To whom belongs what is made; nothing: to whom the place gives it.
struct Owner {
  std::optional<uid_t> user;
  std::optional<gid_t> group;
};

/// What could not be set, for the receipt.
enum class NotKept : std::uint8_t { mode, times, attributes, lists, hard_links, link_times, count };
const char* description_of(NotKept what) noexcept;

/// Sets what is kept on an open file or directory of ours. Owner first, since that drops bits of the mode.
/// Returns what the target cannot hold. An error if the owner cannot be set, or the file system fails.
Result<std::vector<NotKept>> set_status(int descriptor, const Status& status, ListLimit limit, const Owner& owner,
                                        const std::string& where);

}  // namespace forebay::mover
