// SPDX-License-Identifier: Apache-2.0
// The last descriptors of a server's limit are its own: for syncs, journals and accepting. The kernel gives the lowest
// free number, so a number in the reserve says that all below it are taken.
#pragma once

#include <cstddef>

namespace forebay {

/// How many files this process may have open, as its limit is now.
std::size_t descriptors_max() noexcept;
/// How many of them are kept back.
std::size_t descriptors_in_reserve() noexcept;
/// For a descriptor that was opened for a client: close it, and say busy.
bool is_in_reserve(int descriptor) noexcept;

}  // namespace forebay
