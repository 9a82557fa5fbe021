// SPDX-License-Identifier: Apache-2.0
// Text that somebody else wrote, as it may stand in messages, logs and records.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forebay {

/// One line of valid UTF-8 of at most `bytes_max` (at least 3) bytes: control characters become spaces, bytes that are
/// no text become '?', and what is too long ends with "...".
std::string plain_text(std::string_view text, std::size_t bytes_max);

/// As a person may see it, of any length: control characters, marks that change the direction of text and bytes that
/// are no text are escaped, `\\x1b` and `\\u202e`. A backslash stays. The same as visible() of
/// core/forebay/visible_text.py.
std::string visible_text(std::string_view text);

/// The name of a variable or attribute as messages have it: cut, for it may have thousands of bytes.
std::string shown_name(std::string_view name);

}  // namespace forebay
