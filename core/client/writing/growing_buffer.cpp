// SPDX-License-Identifier: Apache-2.0
#include "client/writing/growing_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::client {
namespace {

constexpr std::size_t few_bytes = std::size_t{128} << 10;

}  // namespace

Result<void> GrowingBuffer::reserve(std::size_t bytes, std::size_t kept) {
  if (many_) return {};
  if (bytes <= few_bytes) {
    if (!few_) few_ = std::make_unique_for_overwrite<std::byte[]>(few_bytes);
    return {};
  }
  ASSIGN_OR_RETURN(auto range, AddressRange::reserve(bytes_max_));
  if (::mprotect(range.begin(), bytes_max_, PROT_READ | PROT_WRITE) != 0)
    return system_error(errno, "cannot get 2 MiB of memory to gather small blocks in; see ulimit -v and -m");
  (void)::madvise(range.begin(), bytes_max_, MADV_HUGEPAGE);  // where the kernel has none, small pages do
  if (kept > 0) std::memcpy(range.begin(), few_.get(), kept);
  many_.emplace(std::move(range));
  few_.reset();
  return {};
}

}  // namespace forebay::client
