// SPDX-License-Identifier: Apache-2.0
// What the load generator says: one JSON object a line, written at once, so that whoever reads it knows what this
// process had been told when it was killed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <forebay/result.h>

namespace forebay::load {

using Field = std::pair<std::string_view, std::variant<std::uint64_t, bool, std::string>>;

/// Prints {"event": name, "told_ns": when by the machine's monotonic clock, …}.
void say(std::string_view event, std::initializer_list<Field> fields = {});
/// Prints an error event: which call failed, and how.
void say_error(std::string_view call, const Error& error);

}  // namespace forebay::load
