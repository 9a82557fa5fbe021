// SPDX-License-Identifier: Apache-2.0
// One JSON object of texts, numbers, true, false and null: small files that people and other programs also read. What
// comes in is untrusted; arrays and objects within are refused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <forebay/result.h>

namespace forebay {

/// A value that is neither null, nor a text, nor a whole number from 0: another number, true or false.
struct OtherJsonValue {};

/// std::monostate: null.
using JsonField = std::variant<std::monostate, std::string, std::uint64_t, OtherJsonValue>;

/// The fields by name. invalid_argument says where the text goes wrong; a name that is given twice is wrong.
Result<std::map<std::string, JsonField, std::less<>>> parse_json_fields(std::string_view text);

}  // namespace forebay
