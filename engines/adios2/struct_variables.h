// SPDX-License-Identifier: Apache-2.0
// Variables of struct type in an IO. ADIOS2 refuses to Put them into a plugin engine, after the stream was opened and
// readers wait for it; so they are looked for before.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <adios2.h>

namespace forebay::engine {

/// How many variables the IO has; 0 where this build of ADIOS2 does not let the plugin see it.
std::size_t count_variables(const adios2::IO& io);

/// The name of a variable of struct type that the IO has; none if there is none, or if it cannot be seen.
std::optional<std::string> find_struct_variable(const adios2::IO& io);

}  // namespace forebay::engine
