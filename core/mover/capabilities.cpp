// SPDX-License-Identifier: Apache-2.0
#include "mover/file_system_user.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace forebay::mover {
namespace {

thread_local const FileSystemUser* acting = nullptr;

const std::vector<gid_t>& groups_of_process() {
  static const std::vector<gid_t> groups = [] {
    std::vector<gid_t> found(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
    const int count = ::getgroups(static_cast<int>(found.size()), found.data());
    found.resize(static_cast<std::size_t>(std::max(count, 0)));
    return found;
  }();
  return groups;
}

void become(const FileSystemUser* user) {
  const std::vector<gid_t>& groups = user == nullptr ? groups_of_process() : user->groups;
  const uid_t uid = user == nullptr ? ::geteuid() : user->user;
  const gid_t gid = user == nullptr ? ::getegid() : user->group;
  // The system calls, not the C library's functions: those change all threads of the process.
  const bool failed = ::syscall(SYS_setgroups, groups.size(), groups.data()) != 0;
  ::setfsgid(gid);
  ::setfsuid(uid);
  // With the wrong rights nothing may go on.
  if (failed || static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))) != uid ||
      static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))) != gid)
    std::abort();
}

}  // namespace

ActingAs::ActingAs(const FileSystemUser* user) : before_(acting) {
  if (user == before_) return;
  (void)groups_of_process();  // before they change
  become(user);
  acting = user;
}

ActingAs::~ActingAs() {
  if (acting == before_) return;
  become(before_);
  acting = before_;
}

uid_t acting_user() noexcept {
  return acting == nullptr ? ::geteuid() : acting->user;
}

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
