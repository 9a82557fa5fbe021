// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/failing_memory.h"

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t allocations_before_failure = 0;  // 0: none fails
thread_local bool failure_lasts = false;
thread_local bool failed = false;

void* allocate(std::size_t bytes) {
  if (allocations_before_failure != 0 && --allocations_before_failure == 0) {
    failed = true;
    if (failure_lasts) allocations_before_failure = 1;
    throw std::bad_alloc();
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace forebay::testing {

FailingMemory::FailingMemory(std::uint64_t n, bool lasting) noexcept {
  allocations_before_failure = n;
  failure_lasts = lasting;
  failed = false;
}
FailingMemory::~FailingMemory() {
  allocations_before_failure = 0;
}
bool FailingMemory::has_failed() noexcept {
  return failed;
}

}  // namespace forebay::testing
