// SPDX-License-Identifier: Apache-2.0
// The stream that a program means when it opens a file: `Stream=RES/{name}` under `forebay run`. Pure functions; their
// rules stand in docs/adios2.md.
#pragma once

#include <string>
#include <string_view>

namespace forebay::engine {

/// {name}: the last part of the name alone.
std::string stream_name_of(std::string_view opened_name);

/// {path}: the folders too, joined by "__".
std::string stream_path_of(std::string_view opened_name);

/// True if `address` has {name} or {path} in it.
bool has_placeholder(std::string_view address);

/// True if folders count.
bool has_path_placeholder(std::string_view address);

/// The name with its folders, without what changes nothing: empty parts, ".", and a slash at the end.
std::string plain_path(std::string_view opened_name);

/// `address` with its placeholders filled in.
std::string fill_placeholders(std::string address, std::string_view opened_name);

}  // namespace forebay::engine
