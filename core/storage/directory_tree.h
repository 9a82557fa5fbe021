// SPDX-License-Identifier: Apache-2.0
// Deleting whole trees that users write to. Works on directory descriptors and never follows a symbolic
// link, so that nobody can lead a server that runs as root out of the tree while it walks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <forebay/result.h>

namespace forebay::storage {

/// Deletes `directory`/`name`, file or tree, as long as `entries_left` allows, from which it takes what went. True when
/// all is gone.
/// What lies too deep is moved up into `directory`, under a name that begins with `name`, and left for the next call.
/// An entry that cannot be deleted does not keep the others; the first failure is returned. Another file system mounted
/// inside is not entered.
Result<bool> delete_tree(const std::string& directory, const std::string& name, std::size_t& entries_left);

}  // namespace forebay::storage
