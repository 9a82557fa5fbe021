// SPDX-License-Identifier: Apache-2.0
// Checks of offsets, lengths and products that come from disk, wire or user. The one place where they are made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace forebay {

/// True if [offset, offset + length) lies within [0, size).
constexpr bool range_within(std::uint64_t offset, std::uint64_t length, std::uint64_t size) noexcept {
  return offset <= size && length <= size - offset;
}

/// a * b, or nothing on overflow.
constexpr std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// a + b, or nothing on overflow.
constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// Product of all counts times `element_bytes`, or nothing on overflow.
constexpr std::optional<std::uint64_t> checked_bytes(std::span<const std::uint64_t> counts,
                                                     std::uint64_t element_bytes) noexcept {
  std::uint64_t total = element_bytes;
  for (std::uint64_t count : counts) {
    auto next = checked_multiply(total, count);
    if (!next) return std::nullopt;
    total = *next;
  }
  return total;
}

/// Rounds up to a multiple of `unit`, a power of two. The caller has made sure that it does not overflow.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) & ~(unit - 1);
}

}  // namespace forebay
