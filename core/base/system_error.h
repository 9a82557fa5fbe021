// SPDX-License-Identifier: Apache-2.0
// Turns errno into an Error.
#pragma once

#include <string>

#include <forebay/result.h>

namespace forebay {

/// "ACTION: strerror"; the code follows from the number (ENOSPC → no_space, ENOENT → not_found, ENAMETOOLONG →
/// invalid_argument, …, else io_error).
tl::unexpected<Error> system_error(int number, std::string action, std::string where = {});

}  // namespace forebay
