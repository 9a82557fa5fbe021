// SPDX-License-Identifier: Apache-2.0
// An input read as a row of choices, so that the fuzzer's bytes decide what happens next rather than what every byte of
// a message is. Where the input has ended all choices are 0, which is always the plain, valid one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace forebay::fuzz {

class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const noexcept { return bytes_.empty(); }
  std::uint8_t byte() noexcept {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::size_t below(std::size_t count) noexcept { return byte() % count; }
  /// True for one byte in `count`, and not for 0.
  bool seldom(std::uint8_t count) noexcept { return byte() % count == static_cast<unsigned>(count - 1); }
  std::uint64_t raw(std::size_t bytes) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{byte()} << (8 * i);
    return value;
  }
  /// Mostly what would be right, else something near it, a limit, or anything.
  std::uint64_t near(std::uint64_t right) noexcept {
    const std::uint8_t choice = byte();
    switch (choice) {
      case 248:
        return 0;
      case 249:
        return std::numeric_limits<std::uint64_t>::max();
      case 250:
        return std::numeric_limits<std::uint64_t>::max() - 1;
      case 251:
        return std::uint64_t{1} << 32;
      case 252:
        return raw(8);
      case 253:
        return raw(2);
      default:
        return choice < 192 ? right : choice < 224 ? right + (choice - 191) : right - (choice - 223);
    }
  }
  std::uint32_t near32(std::uint32_t right) noexcept { return static_cast<std::uint32_t>(near(right)); }
  std::span<const std::uint8_t> bytes(std::size_t count) noexcept {
    const auto taken = bytes_.first(count < bytes_.size() ? count : bytes_.size());
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace forebay::fuzz
