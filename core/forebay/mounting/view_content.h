// SPDX-License-Identifier: Apache-2.0
// The bytes of one file that is shown: runs of memory, and runs that are asked for when they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace forebay::mounting {

/// Runs do not overlap; what none of them covers is zero. Filled by one thread, then read by any.
class ViewContent {
 public:
  /// Fills `out` with the run's bytes from `start` on; 0, or an errno.
  using Fill = std::function<int(std::uint64_t start, std::span<std::byte> out)>;

  explicit ViewContent(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  /// Bytes that stay as long as `owner` does.
  void add_memory(std::uint64_t offset, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  void add_filled(std::uint64_t offset, std::uint64_t size_bytes, Fill fill);
  /// To be called after the last run was added.
  void sort();

  /// The bytes themselves, if one run of memory has them all. The range lies within the file.
  std::optional<std::span<const std::byte>> direct(std::uint64_t offset, std::uint64_t size_bytes) const;

  /// Copies a range that lies within the file; 0, or an errno.
  int read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  struct Run {
    std::uint64_t offset = 0;
    std::uint64_t size_bytes = 0;
    const std::byte* memory = nullptr;  ///< null: `fill` has it
    Fill fill;
    std::shared_ptr<const void> owner;
  };
  /// The first run that ends behind `offset`.
  std::vector<Run>::const_iterator first_behind(std::uint64_t offset) const;

  std::uint64_t size_bytes_;
  std::vector<Run> runs_;
};

}  // namespace forebay::mounting
