// SPDX-License-Identifier: Apache-2.0
// Sockets in the file system, whatever the length of their paths. The kernel takes paths of 107 bytes; a longer one is
// reached through a descriptor of its folder, as /proc/self/fd/N/NAME.
#pragma once

#include <string>

namespace forebay {

/// As connect(2): 0, or -1 with errno.
int connect_unix(int socket, const std::string& path);

/// As bind(2): 0, or -1 with errno.
int bind_unix(int socket, const std::string& path);

}  // namespace forebay
