// SPDX-License-Identifier: Apache-2.0
// Invariants: what holds whatever clients, disks and the network do. Builds with assertions look at them while a server
// runs. One that does not hold is a bug: it ends the process before more of it reaches the disk.
#pragma once

#include <string>
#include <type_traits>

namespace forebay {

/// Does this build look at them? Those of the presets `dev`, `asan`, `tsan` and `fuzz` do.
#ifdef NDEBUG
inline constexpr bool checks_invariants = false;
#else
inline constexpr bool checks_invariants = true;
#endif

/// Prints what does not hold and ends the process.
[[noreturn]] void broken_invariant(const std::string& what);

/// Ends the process unless it `holds`. `what` does not hold, for people: a text, or a function that returns one.
template <class What>
void invariant(bool holds, const What& what) {
  if (holds) return;
  if constexpr (std::is_invocable_v<What>) {
    broken_invariant(what());
  } else {
    broken_invariant(what);
  }
}

}  // namespace forebay
