// SPDX-License-Identifier: Apache-2.0
// A server's end of a data path that has a thread of its own.
#pragma once

#include "fabric/data_path.h"

namespace forebay::fabric {

class RunningPath : public ServerPath {
 public:
  /// The thread's life. disconnected when the client or close() has ended it.
  virtual Result<void> run() = 0;
};

}  // namespace forebay::fabric
