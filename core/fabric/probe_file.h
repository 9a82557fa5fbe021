// SPDX-License-Identifier: Apache-2.0
// Bytes that mean nothing, for measuring a data path.
#pragma once

#include <algorithm>

#include "base/device.h"

namespace forebay::fabric {

/// More is asked for in several requests.
inline constexpr std::uint64_t probe_bytes_max = std::uint64_t{64} << 20;

class ProbeFile final : public File {
 public:
  Result<void> read_at(std::uint64_t, std::span<std::byte> bytes) const override {
    std::ranges::fill(bytes, std::byte{0});
    return {};
  }
  Result<void> write_at(std::uint64_t, std::span<const std::byte>) override { return refused(); }
  Result<void> allocate(std::uint64_t) override { return refused(); }
  Result<void> free_space(std::uint64_t, std::uint64_t) override { return refused(); }
  Result<void> sync() override { return refused(); }
  Result<std::uint64_t> size() const override { return probe_bytes_max; }
  int descriptor() const noexcept override { return -1; }

 private:
  static Result<void> refused() { return fail(ErrorCode::unsupported, "bytes that mean nothing can only be read"); }
};

}  // namespace forebay::fabric
