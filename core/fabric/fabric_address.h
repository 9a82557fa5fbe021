// SPDX-License-Identifier: Apache-2.0
// Addresses of fabric endpoints as bytes, and how they belong to the nodes of sockets.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace forebay::fabric {

/// The numeric address of this node, or of the other one, on a connected TCP socket; empty if it is gone.
std::string own_node(int socket);
std::string peer_node(int socket);

/// True if `address` has the form of `own` and, where that is an Internet address, is one of `node`.
bool is_plausible_address(std::span<const std::byte> address, std::span<const std::byte> own, const std::string& node);

/// Marks this process's sockets that are bound to `own` or connected to `peer`: programs that it starts do not get
/// them.
void mark_sockets_close_on_exec(std::span<const std::byte> own, std::span<const std::byte> peer) noexcept;

}  // namespace forebay::fabric
