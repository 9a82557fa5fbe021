// SPDX-License-Identifier: Apache-2.0
// Whose rights a thread has while it opens and makes files. Only a process of root has more than one choice.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace forebay {

struct FileSystemUser {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;
};

/// What happens where this process cannot be that user, for want of rights or in a user namespace that does not have
/// them. With the wrong rights nothing may go on unnoticed.
enum class IfImpossible : std::uint8_t { abort, tell };

/// Until it ends, the calling thread acts as that user where files are concerned: without root's capabilities for them,
/// too. Null: as the process. They nest.
class ActingAs {
 public:
  explicit ActingAs(const FileSystemUser* user, IfImpossible then = IfImpossible::abort);
  ~ActingAs();
  /// False if this process cannot be that user and was to tell: then the thread acts as before.
  bool possible() const noexcept { return possible_; }
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

 private:
  const FileSystemUser* const before_;
  bool possible_ = true;
};

/// The user that the calling thread acts as now.
uid_t acting_user() noexcept;

}  // namespace forebay
