// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/faults/failing_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t allocations_before_failure = 0;  // 0: none fails
thread_local bool failure_lasts = false;
thread_local bool failed = false;
std::atomic<std::uint64_t> allocations_left_to_all = 0;  // the last of them fails; 0: none does

/// Null where a failure was planned or there is no more memory.
void* try_allocate(std::size_t bytes) noexcept {
  if (allocations_before_failure != 0 && --allocations_before_failure == 0) {
    failed = true;
    if (failure_lasts) allocations_before_failure = 1;
    return nullptr;
  }
  if (allocations_left_to_all.load(std::memory_order_relaxed) != 0 && --allocations_left_to_all == 0) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* allocate(std::size_t bytes) {
  void* memory = try_allocate(bytes);
  if (memory != nullptr) return memory;
  if (const std::new_handler handler = std::get_new_handler()) handler();
  throw std::bad_alloc();
}

}  // namespace

// All forms but the aligned ones: a sanitizer brings its own for those that are missing here, and what these gave must
// not come to our delete (std::stable_sort takes its buffer from the nothrow form). The aligned ones are a set of their
// own.
void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return try_allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return try_allocate(bytes);
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
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
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

void fail_allocation_of_any_thread(std::uint64_t n) noexcept {
  allocations_left_to_all = n;
}

}  // namespace forebay::testing
