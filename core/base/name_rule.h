// SPDX-License-Identifier: Apache-2.0
// What a name of a reservation, stream or consumer must be (is_valid_name), as errors say it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forebay {

inline constexpr std::size_t name_bytes_max = 64;

/// What is wrong with a name that is not valid, and what would be right. Quotes it, cut if it is long.
std::string describe_bad_name(std::string_view name);

}  // namespace forebay
