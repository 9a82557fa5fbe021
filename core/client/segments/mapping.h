// SPDX-License-Identifier: Apache-2.0
// A block's pieces mapped one after another, so that they look like one array.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <forebay/protocol/step_metadata_generated.h>

#include "base/device.h"
#include "client/segments/address_range.h"
#include "client/segments/segment_cache.h"

namespace forebay::client {

class Mapping {
 public:
  /// Maps pieces that begin at pages and of which all but the last end at one. The segments hold them; the mapping
  /// lives on without the cache.
  static Result<std::shared_ptr<Mapping>> map(const SegmentCache& segments, std::span<const format::Piece> pieces,
                                              bool writable);
  /// Private memory of as many bytes, for what comes from or goes to another node.
  static Result<std::shared_ptr<Mapping>> of_memory(std::size_t bytes);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<std::byte> bytes() const noexcept { return {address_, bytes_}; }
  /// A program's share: it holds the mapping until the last copy of this is gone, in whatever thread. One at a time.
  static std::shared_ptr<void> hold(const std::shared_ptr<Mapping>& mapping);
  bool is_held() const noexcept { return held_.load(std::memory_order_acquire); }
  /// Keeps `thing` as long as the program holds the mapping.
  void keep_while_held(std::shared_ptr<const void> thing);
  /// From now on a write through the mapping is a fault instead of a change to data that others read.
  Result<void> make_read_only();
  /// For another step, when nobody looks at this one's bytes any more.
  Result<void> make_writable();

 private:
  Mapping(AddressRange range, std::byte* address, std::size_t bytes) noexcept
      : range_(std::move(range)), address_(address), bytes_(bytes) {}

  const AddressRange range_;
  std::byte* const address_;
  const std::size_t bytes_;
  std::atomic<bool> held_ = false;
  std::mutex kept_mutex_;
  std::shared_ptr<const void> kept_;                  // guarded by kept_mutex_; null unless held
  std::vector<std::unique_ptr<MappedRange>> ranges_;  // who is told when the mapping can be written; empty but in tests
};

}  // namespace forebay::client
