// SPDX-License-Identifier: Apache-2.0
#include "mover/capabilities.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace forebay::mover {

void keep_capabilities_for_files() {
  if (::geteuid() != 0) return;
  constexpr std::uint32_t kept = (1U << CAP_CHOWN) | (1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH) |
                                 (1U << CAP_FOWNER) | (1U << CAP_SETUID) | (1U << CAP_SETGID) | (1U << CAP_LEASE);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) std::abort();
  data[0].effective &= kept;
  data[0].permitted &= kept;
  data[0].inheritable = 0;
  data[1] = {};
  if (::syscall(SYS_capset, &header, data) != 0) std::abort();
}

}  // namespace forebay::mover
