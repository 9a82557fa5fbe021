// SPDX-License-Identifier: Apache-2.0
// What `forebay run` knows about the Open that a plugin engine is created for, and ADIOS2's plugin interface does not
// tell: the name, the mode and the communicator. Without the hook nothing is known.
#pragma once

#include <optional>
#include <string>

#include <adios2.h>

#include <forebay/writer.h>

namespace forebay::engine {

struct OpenContext {
  std::string name;  ///< that the program opens
  adios2::Mode mode;
  std::optional<LauncherRank> communicator;  ///< of the Open, if it is MPI's
  std::string engine;                        ///< type that the program chose for the IO; empty: the plugin itself
};

/// Of the Open that this thread is in.
std::optional<OpenContext> current_open();

}  // namespace forebay::engine
