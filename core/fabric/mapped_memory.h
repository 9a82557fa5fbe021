// SPDX-License-Identifier: Apache-2.0
// Memory of a data path, from the kernel: whole pages that nobody else uses, given back at its end.
#pragma once

#include <cstddef>
#include <span>

#include <forebay/result.h>

namespace forebay::fabric {

class MappedMemory {
 public:
  static Result<MappedMemory> make(std::size_t size);
  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace forebay::fabric
