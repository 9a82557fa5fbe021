// SPDX-License-Identifier: Apache-2.0
// Names of nodes as Slurm writes a list of them: n[01-04,7],login1. The manager reads the same with node_names.py.
#pragma once

#include <optional>
#include <string_view>

namespace forebay::slurm {

/// True if the list names the node; nothing if it is no such list.
std::optional<bool> names_node(std::string_view list, std::string_view node);

}  // namespace forebay::slurm
