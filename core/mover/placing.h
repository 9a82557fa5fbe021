// SPDX-License-Identifier: Apache-2.0
// How a finished entry gets its final name.
#pragma once

#include <cstdint>
#include <string>

#include <forebay/result.h>

namespace forebay::mover {

enum class EntryKind : std::uint8_t { file, link, directory };

/// Renames `from` to a name that was free when the stage looked. already_exists if something came there meanwhile.
Result<void> place_new(int from_directory, const std::string& from, int to_directory, const std::string& to,
                       EntryKind kind, const std::string& where);

/// Renames a file or a link over what is there, which is no directory.
Result<void> place_over(int from_directory, const std::string& from, int to_directory, const std::string& to,
                        const std::string& where);

/// Gives `from` the name of what is there, which ends up in `from_directory`, to be removed with it. In one step, where
/// the file system can exchange names; elsewhere an older directory goes out of the way first.
Result<void> place_instead(int from_directory, const std::string& from, int to_directory, const std::string& to,
                           EntryKind kind, bool was_directory, const std::string& where);

}  // namespace forebay::mover
