// SPDX-License-Identifier: Apache-2.0
// The two ends of a stage, found by the names that a user gave. From here on descriptors say where they are.
#pragma once

#include <string>
#include <vector>

#include <forebay/result.h>

#include "base/descriptor.h"
#include "mover/name_walk.h"
#include "mover/stage.h"
#include "mover/work.h"

namespace forebay::mover {

struct SourceEnd {
  Descriptor directory;  ///< holds it
  std::string name;      ///< in the directory; ".": the directory itself
  std::string base_name;
  bool is_directory = false;
  mode_t type = 0;  ///< S_IFREG and so on
  FileIdentity identity;
  std::vector<FileIdentity> above;  ///< directories that contain it
};

struct TargetEnd {
  Descriptor directory;  ///< gets the entry
  std::string name;
  Descriptor tree;  ///< the directory that is there already and is brought up to date; else not valid
  std::vector<FileIdentity> above;
};

struct Ends {
  SourceEnd source;
  TargetEnd target;
};

/// Opens both, makes the directories above the target, and fills in the texts of `work`'s ends.
///
/// not_found: there is no source. invalid_argument: a name leads out of the reservation, or one end contains the other.
/// permission_denied: a link of somebody else.
Result<Ends> open_ends(const Request& request, Work& work);

}  // namespace forebay::mover
