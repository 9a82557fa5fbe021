// SPDX-License-Identifier: Apache-2.0
#include "fabric/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/system_error.h"

namespace forebay::fabric {

Result<MappedMemory> MappedMemory::make(std::size_t size) {
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return system_error(errno, "no memory for a data path");
  MappedMemory made;
  made.bytes_ = {static_cast<std::byte*>(address), size};
  return made;
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace forebay::fabric
