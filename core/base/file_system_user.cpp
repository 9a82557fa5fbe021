// SPDX-License-Identifier: Apache-2.0
#include "base/file_system_user.h"

#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace forebay {
namespace {

thread_local const FileSystemUser* acting = nullptr;

/// Of the calling thread.
std::vector<gid_t> groups_now() {
  std::vector<gid_t> found(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(found.size()), found.data());
  found.resize(static_cast<std::size_t>(std::max(count, 0)));
  return found;
}

const std::vector<gid_t>& groups_of_process() {
  static const std::vector<gid_t> groups = groups_now();
  return groups;
}

/// False if the kernel does not let this process be that user.
bool become(const FileSystemUser* user) {
  const std::vector<gid_t>& groups = user == nullptr ? groups_of_process() : user->groups;
  const uid_t uid = user == nullptr ? ::geteuid() : user->user;
  const gid_t gid = user == nullptr ? ::getegid() : user->group;
  // The system calls, not the C library's functions: those change all threads of the process.
  if (groups_now() != groups && ::syscall(SYS_setgroups, groups.size(), groups.data()) != 0) return false;
  ::setfsgid(gid);
  ::setfsuid(uid);
  return static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))) == uid &&
         static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))) == gid;
}

}  // namespace

ActingAs::ActingAs(const FileSystemUser* user, IfImpossible then) : before_(acting) {
  if (user == before_) return;
  (void)groups_of_process();  // before they change
  possible_ = become(user);
  if (possible_) {
    acting = user;
  } else if (then == IfImpossible::abort || !become(before_)) {
    std::abort();
  }
}

ActingAs::~ActingAs() {
  if (acting == before_) return;
  // With the wrong rights nothing may go on.
  if (!become(before_)) std::abort();
  acting = before_;
}

uid_t acting_user() noexcept {
  return acting == nullptr ? ::geteuid() : acting->user;
}

}  // namespace forebay
