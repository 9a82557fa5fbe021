// SPDX-License-Identifier: Apache-2.0
// What the file system below a descriptor can be trusted with.
#pragma once

#include <string>

#include <forebay/result.h>

namespace forebay::mover {

/// True if it is known to lie on this machine: neither a network file system nor one that a process implements (FUSE).
bool is_local(int descriptor) noexcept;

/// True if syncfs() on it syncs all, and tells errors (Linux 5.8 and later, local file systems).
bool syncs_whole(int descriptor) noexcept;

/// What a lease says about a file that is open for reading.
enum class Writers : unsigned char {
  none,
  some,     ///< a program has it open for writing
  unknown,  ///< the file is somebody else's, or its file system has no leases
};

/// Asks the kernel, which answers for this instant. `local`: what is_local() says of the file.
Writers writers_of(int descriptor, bool local) noexcept;

}  // namespace forebay::mover
