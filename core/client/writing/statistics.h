// SPDX-License-Identifier: Apache-2.0
// Minimum and maximum of a block, taken chunk by chunk while the bytes are in the cache.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <forebay/types.h>

#include "protocol/step_metadata_builder.h"

namespace forebay::client {

class MinMax {
 public:
  /// For elements of `type`, which has_order().
  explicit MinMax(DataType type) noexcept;

  /// Takes in more elements; whole ones, at any alignment.
  void add(std::span<const std::byte> elements) noexcept;

  /// Both values in the form that the metadata has. NaN never wins over a number; only NaN gives NaN. Something was
  /// added.
  protocol::Statistics result() const noexcept;

 private:
  DataType type_;
  alignas(16) std::array<std::byte, 16> min_{};
  alignas(16) std::array<std::byte, 16> max_{};
};

}  // namespace forebay::client
