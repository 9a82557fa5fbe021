// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace forebay::mover {

/// Gives up what root can do beside opening, making and giving away files: it is held to quotas then. Nothing happens
/// in a process of another user.
void keep_capabilities_for_files();

}  // namespace forebay::mover
