// SPDX-License-Identifier: Apache-2.0
// Random identifiers for reservations and streams.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace forebay {

/// A random (version 4) UUID in its canonical text form.
std::string random_uuid();

/// True for 36 characters of canonical text form.
bool is_uuid(std::string_view text) noexcept;

/// A random 64-bit number, never 0.
std::uint64_t random_number();

}  // namespace forebay
