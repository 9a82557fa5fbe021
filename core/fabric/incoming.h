// SPDX-License-Identifier: Apache-2.0
// Bytes on their way from a server: where they go, and their checksum, taken while they are in the processor's cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checksum.h"

namespace forebay::fabric {

class Incoming {
 public:
  /// A run of them. `checksum`: gets their CRC-32C; null: none is taken.
  struct Part {
    std::span<std::byte> bytes;
    std::uint32_t* checksum = nullptr;
  };

  /// `checksum`: CRC-32C of what came before these bytes, afterwards that of all; null: none is taken. Bytes that are
  /// asked for once more begin with it as it was.
  explicit Incoming(std::span<std::byte> bytes, std::uint32_t* checksum = nullptr) noexcept
      : left_(bytes), checksum_(checksum) {}
  /// These, one behind another. The parts outlive this.
  explicit Incoming(std::span<const Part> parts) noexcept : parts_(parts) {
    for (const Part& part : parts) {
      behind_ += part.bytes.size();
      if (part.checksum != nullptr) *part.checksum = 0;
    }
    go_on();
  }

  std::size_t size() const noexcept { return left_.size() + behind_; }
  bool empty() const noexcept { return left_.empty(); }
  /// Where the next of them go: at most `bytes_max`, and no more at once than the cache keeps for the checksum.
  std::span<std::byte> next(std::size_t bytes_max) const noexcept {
    if (checksum_ != nullptr) bytes_max = std::min(bytes_max, cached_bytes);
    return left_.first(std::min(left_.size(), bytes_max));
  }
  /// The next `count`, no more than next() gave, are there.
  void arrived(std::size_t count) noexcept {
    if (checksum_ != nullptr) *checksum_ = crc32c(left_.first(count), *checksum_);
    left_ = left_.subspan(count);
    go_on();
  }

 private:
  static constexpr std::size_t cached_bytes = std::size_t{256} << 10;

  void go_on() noexcept {
    while (left_.empty() && !parts_.empty()) {
      left_ = parts_.front().bytes;
      checksum_ = parts_.front().checksum;
      behind_ -= left_.size();
      parts_ = parts_.subspan(1);
    }
  }

  std::span<std::byte> left_;
  std::uint32_t* checksum_ = nullptr;
  std::span<const Part> parts_;  // behind left_
  std::size_t behind_ = 0;       // their bytes
};

}  // namespace forebay::fabric
