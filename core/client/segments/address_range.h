// SPDX-License-Identifier: Apache-2.0
// Addresses that are reserved for files to be mapped at.
#pragma once

#include <cstddef>
#include <utility>

#include <forebay/result.h>

namespace forebay::client {

/// The kernel maps a file's large pages as such where address and offset in the file agree modulo this: a fault for
/// each 2 MiB instead of one for each 4 or 64 KiB.
inline constexpr std::size_t large_page_bytes = std::size_t{2} << 20;

/// Unmaps all of it at its end, whatever was mapped there.
class AddressRange {
 public:
  /// Begins at a multiple of `alignment`, a power of two, and has at least `bytes`. Errors: io_error, as where
  /// addresses are limited (ulimit -v).
  static Result<AddressRange> reserve(std::size_t bytes, std::size_t alignment = large_page_bytes);
  AddressRange(AddressRange&& other) noexcept
      : mapped_(std::exchange(other.mapped_, nullptr)), mapped_bytes_(other.mapped_bytes_), begin_(other.begin_) {}
  AddressRange& operator=(AddressRange&&) = delete;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  std::byte* begin() const noexcept { return begin_; }

 private:
  AddressRange(void* mapped, std::size_t mapped_bytes, std::byte* begin) noexcept
      : mapped_(mapped), mapped_bytes_(mapped_bytes), begin_(begin) {}

  void* mapped_;
  std::size_t mapped_bytes_;
  std::byte* begin_;
};

}  // namespace forebay::client
