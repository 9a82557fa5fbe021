// SPDX-License-Identifier: Apache-2.0
// What tells a process from all others of its node, and whether such a process has ended: for others that run there.
#pragma once

#include <string>
#include <string_view>

namespace forebay {

/// Of this process: boot, namespace of pids, pid and start. Empty if the system does not say.
std::string own_process_identity();

/// True only if it names a process that ran in this process's boot and namespace of pids, and runs no more.
bool process_has_ended(std::string_view identity);

}  // namespace forebay
