// SPDX-License-Identifier: Apache-2.0
// What a server's small text files in its root say: `pool` and `boot-id` (docs/formats/pins.md).
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

}  // namespace forebay::server
