// SPDX-License-Identifier: Apache-2.0
// Which attributes an IO has. ADIOS2's own list, IO::AvailableAttributes, prints the values of each into text: of an
// attribute of 1 MiB that takes 30 ms of processor time at each call.
#pragma once

#include <map>
#include <string>

#include <adios2.h>

namespace forebay::engine {

/// ADIOS2's names of the types of all attributes, by the attributes' names.
std::map<std::string, std::string> attribute_types(const adios2::IO& io);

/// True if `io` has any attribute.
bool has_attributes(const adios2::IO& io);

}  // namespace forebay::engine
