// SPDX-License-Identifier: Apache-2.0
#include "client/connection/opening_process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace forebay::client {
namespace {

constexpr std::size_t mark_bytes = 4096;

}  // namespace

OpeningProcess::OpeningProcess() noexcept : process_(::getpid()) {
  void* page = ::mmap(nullptr, mark_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, mark_bytes, MADV_WIPEONFORK) != 0) {
    ::munmap(page, mark_bytes);
    return;
  }
  mark_ = static_cast<volatile char*>(page);
  *mark_ = 1;
}

OpeningProcess::~OpeningProcess() {
  if (mark_ != nullptr) ::munmap(const_cast<char*>(mark_), mark_bytes);
}

bool OpeningProcess::is_current() const noexcept {
  return mark_ != nullptr ? *mark_ != 0 : ::getpid() == process_;
}

Result<void> OpeningProcess::check() const {
  if (is_current()) return {};
  return fail(ErrorCode::invalid_argument, "opened in process " + std::to_string(process_) + ", used in its child " +
                                               std::to_string(::getpid()) +
                                               ": a forked process must open streams itself");
}

}  // namespace forebay::client
