// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/mover/circumstances.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include <gtest/gtest.h>

namespace forebay::mover {
namespace {

std::string_view chosen() {
  const char* text = std::getenv("FOREBAY_TEST_MOVER");
  return text == nullptr ? std::string_view() : text;
}

/// As in a container whose filter is older than the calls, on a file system without RENAME_NOREPLACE.
void refuse_calls() {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[4])),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{filter.size(), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    std::abort();
}

class Circumstances : public ::testing::Environment {
 public:
  void SetUp() override {
    if (calls_are_refused()) refuse_calls();
  }
};

[[maybe_unused]] const auto* const environment = ::testing::AddGlobalTestEnvironment(new Circumstances);

}  // namespace

bool calls_are_refused() {
  return chosen() == "refused";
}

bool target_is_plain() {
  return chosen() == "plain";
}

}  // namespace forebay::mover
