// SPDX-License-Identifier: Apache-2.0
// A segment on another node as one step's reader sees it: reads are requests for extents of the step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/device.h"
#include "client/reading/reader_link.h"

namespace forebay::client {

class RemoteStepFile final : public File {
 public:
  RemoteStepFile(const Pin& pin, std::uint32_t segment, std::uint16_t member) noexcept
      : pin_(pin), segment_(segment), member_(member) {}

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override;
  /// `checksum`: CRC-32C of what comes before the bytes, then of all; null: none is taken.
  static Result<void> read(const Pin& pin, const wire::Extent& extent, std::span<std::byte> bytes,
                           std::uint32_t* checksum);
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override;
  Result<void> allocate(std::uint64_t size) override;
  Result<void> free_space(std::uint64_t offset, std::uint64_t length) override;
  Result<void> sync() override;
  Result<std::uint64_t> size() const override;
  int descriptor() const noexcept override { return -1; }

 private:
  const Pin& pin_;  // held by whoever reads
  const std::uint32_t segment_;
  const std::uint16_t member_;
};

}  // namespace forebay::client
