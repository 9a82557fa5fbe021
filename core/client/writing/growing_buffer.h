// SPDX-License-Identifier: Apache-2.0
// Memory for bytes that are gathered.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "client/segments/address_range.h"

namespace forebay::client {

/// Little memory at first; when that is too small, as much as there may ever be, in large pages: one fault instead of
/// 512, which matters most where memory is first touched.
class GrowingBuffer {
 public:
  explicit GrowingBuffer(std::size_t bytes_max) noexcept : bytes_max_(bytes_max) {}

  /// Room for `bytes`, at most those of the constructor; the first `kept` of them stay as they are. Errors: io_error.
  Result<void> reserve(std::size_t bytes, std::size_t kept);
  std::byte* data() noexcept { return many_ ? many_->begin() : few_.get(); }

 private:
  const std::size_t bytes_max_;
  std::unique_ptr<std::byte[]> few_;
  std::optional<AddressRange> many_;
};

}  // namespace forebay::client
