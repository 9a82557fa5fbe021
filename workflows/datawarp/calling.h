// SPDX-License-Identifier: Apache-2.0
// One call of libdatawarp: names in the program's view become paths that the manager knows, the request is sent, and
// sent again if the manager was away.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace forebay::datawarp {

/// Where a name leads: absolute, and without links in the folders above its last part. 0, or a negative error number.
/// What does not exist yet keeps the rest of its name.
int resolve(const char* name, std::string& path);

/// An absolute path, links and all.
int make_absolute(const char* name, std::string& path);

using Fields = std::initializer_list<std::pair<std::string_view, std::string_view>>;

/// Sends the call; 0, or a negative error number. `body`: what it answers. `waits`: the call says -EAGAIN as long as
/// what it waits for has not happened, and is made again.
int call(std::string_view name, Fields fields, std::string& body, bool waits = false);

/// This process's umask, as octal digits.
std::string own_umask();

/// What the environment has; "" without it.
std::string environment(const char* name);

}  // namespace forebay::datawarp
