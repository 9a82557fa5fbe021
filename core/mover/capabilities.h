// SPDX-License-Identifier: Apache-2.0
// Whose rights a thread has while it opens and makes files. Only a process of root has more than one choice.
#pragma once

#include <sys/types.h>

#include <vector>

namespace forebay::mover {

struct FileSystemUser {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;
};

/// Until it ends, the calling thread acts as that user where files are concerned: without root's capabilities for them,
/// too. Null: as the process. They nest; the calls cannot fail for a process that may do this.
class ActingAs {
 public:
  explicit ActingAs(const FileSystemUser* user);
  ~ActingAs();
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

 private:
  const FileSystemUser* const before_;
};

/// The user that the calling thread acts as now.
uid_t acting_user() noexcept;

/// Gives up what root can do beside opening, making and giving away files: it is held to quotas then. Nothing happens
/// in a process of another user.
void keep_capabilities_for_files();

}  // namespace forebay::mover
