// SPDX-License-Identifier: Apache-2.0
// libfabric's shared library and the few functions of it that are not reached through its own tables. Includes its
// headers: only for the files that use them.
#pragma once

#include <cstdint>
#include <string>

#include <rdma/fabric.h>

#include <forebay/result.h>

namespace forebay::fabric {

struct LibfabricLibrary {
  // Of the versions that the headers of libfabric 1.17 describe; a newer library has them, too.
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  std::uint32_t version = 0;
  std::string path;

  /// Loaded at the first call that succeeds, and never unloaded.
  static Result<const LibfabricLibrary*> load();
};

}  // namespace forebay::fabric
