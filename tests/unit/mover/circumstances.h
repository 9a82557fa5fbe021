// SPDX-License-Identifier: Apache-2.0
// The mover's tests run three times: as it is, where the kernel or a filter refuses openat2 and the flags of renameat2,
// and with a target that has neither attributes nor access lists. FOREBAY_TEST_MOVER says which: "", refused or plain.
#pragma once

namespace forebay::mover {

/// openat2 says EPERM, renameat2 with flags EINVAL, from the beginning of the program on.
bool calls_are_refused();
/// Stages go to a file system (ramfs) without attributes and lists.
bool target_is_plain();

}  // namespace forebay::mover
