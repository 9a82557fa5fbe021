// SPDX-License-Identifier: Apache-2.0
#include "client/segments/address_range.h"

#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <string>

#include "base/system_error.h"

namespace forebay::client {

Result<AddressRange> AddressRange::reserve(std::size_t bytes, std::size_t alignment) {
  std::size_t room = bytes + alignment - 1;
  const std::size_t reserved_bytes = room;
  void* reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    return system_error(errno, "cannot reserve " + std::to_string(reserved_bytes) + " bytes of addresses");
  void* begin = reserved;
  std::align(alignment, bytes, begin, room);
  return AddressRange(reserved, reserved_bytes, static_cast<std::byte*>(begin));
}

AddressRange::~AddressRange() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

}  // namespace forebay::client
