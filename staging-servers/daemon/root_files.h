// SPDX-License-Identifier: Apache-2.0
// What a server's small text files in its root say: `pool`, `boot-id` and `identity` (docs/formats/pins.md).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <forebay/result.h>

namespace forebay::server {

/// The pool's size in bytes; `path` for the error.
Result<std::uint64_t> parse_pool(const std::string& text, const std::string& path);

/// Of which boot the recovery is whole, but for the streams that could not be checked, by reservation's id.
struct BootNote {
  std::string boot_id;
  std::map<std::string, std::set<std::string>> unchecked;
};
/// Of any text: what is no line of a note is left out.
BootNote parse_boot_note(const std::string& text);
std::string to_text(const BootNote& note);

/// Which root this is, and how often its storage may have lost what was not synced.
struct RootIdentity {
  std::string uuid;
  std::uint64_t storage_incarnation = 0;  ///< drawn anew at each boot; not 0
};
/// Errors: unsupported if it is not one of this version; corrupt. `path` for the error.
Result<RootIdentity> parse_identity(const std::string& text, const std::string& path);
/// Of the same length for every identity.
std::string to_text(const RootIdentity& identity);

}  // namespace forebay::server
