// SPDX-License-Identifier: Apache-2.0
// What the requests of administrators have in common.
#pragma once

#include <optional>
#include <vector>

#include <forebay/result.h>

namespace forebay::server {

class Stream;

/// Why removing these streams would lose something; nothing if it would not.
std::optional<Error> loss_of(const std::vector<Stream*>& streams);

}  // namespace forebay::server
