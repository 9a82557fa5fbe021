// SPDX-License-Identifier: Apache-2.0
// Shows a tree below a folder by FUSE (libfuse3's low-level interface). Read-only: the kernel refuses every change.
#pragma once

#include <memory>
#include <string>

#include "shown_tree.h"

namespace forebay::mounting {

class FuseMount {
 public:
  /// Mounts. `source` is what mount(8) shows as the device. Null, with the reason in `error`, where that fails.
  static std::unique_ptr<FuseMount> mount(ShownTree& tree, const std::string& folder, const std::string& source,
                                          std::string& error);
  /// Unmounts.
  ~FuseMount();
  FuseMount(const FuseMount&) = delete;
  FuseMount& operator=(const FuseMount&) = delete;

  /// Answers the kernel until somebody unmounts, or until SIGINT, SIGTERM or SIGHUP. 0, or an errno.
  int run();

  struct Impl;

 private:
  explicit FuseMount(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::mounting
