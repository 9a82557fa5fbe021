// SPDX-License-Identifier: Apache-2.0
// Whether a reader from before a restart still exists. Each reader's client keeps a descriptor of an empty file in
// ROOT/readers on which the server took a shared lock. The kernel releases the lock when the reader and the steps that
// it holds are closed, even if no server runs at that moment. Forked children keep it as they keep the views. The same
// in the folder of a reservation's share, for readers on this node whose home is another server.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <forebay/result.h>

#include "base/descriptor.h"

namespace forebay::server {

/// How many readers of each user map what shares of this server have; none with 0.
using MappingUsers = std::map<uid_t, std::size_t>;

class ReaderPresence {
 public:
  /// Makes FOLDER/readers if need be.
  static Result<ReaderPresence> open(const std::string& folder);

  /// A rank of a reader group: the group's number, and the rank.
  using GroupRank = std::pair<std::uint64_t, std::uint32_t>;

  /// What this session's client is to keep open; invalid where the file cannot be made. The file says which rank it is,
  /// if it is one.
  Descriptor admit(std::uint64_t session, const std::optional<GroupRank>& rank = {}) const;
  /// The sessions of all ranks of groups that have a file, also of those that are gone.
  std::map<GroupRank, std::uint64_t> ranks() const;
  /// All that have a file, also of those that are gone.
  Result<std::set<std::uint64_t>> sessions() const;
  /// The session has ended.
  void forget(std::uint64_t session) const;

  enum class State {
    present,  ///< somebody holds it
    gone,     ///< nobody does
    unknown,  ///< it has no file: only its process can tell
  };
  /// Present where it cannot be looked at, for want of descriptors say.
  State state(std::uint64_t session) const;
  /// Removes the files of sessions that are not among these.
  void keep_only(const std::set<std::uint64_t>& sessions) const;

 private:
  explicit ReaderPresence(std::string directory) : directory_(std::move(directory)) {}
  std::string path(std::uint64_t session) const;
  static bool write_rank(const std::string& path, const GroupRank& rank);
  /// It is of no use any more, and does no harm.
  static void remove(const std::string& path);

  std::string directory_;
};

/// The process of a reader that has no file.
class ReaderProcess {
 public:
  explicit ReaderProcess(pid_t pid) noexcept;
  /// Never of one that could not be looked at.
  bool has_ended() const noexcept;

 private:
  Descriptor descriptor_;
  bool had_ended_;
};

}  // namespace forebay::server
