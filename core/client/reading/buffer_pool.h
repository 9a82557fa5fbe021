// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace forebay::client {

/// Buffers of one size, kept for the next reads.
class BufferPool {
 public:
  static constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
  using Buffer = std::unique_ptr<std::byte[]>;

  BufferPool();
  Buffer take();
  void give_back(Buffer buffer);

 private:
  std::mutex mutex_;
  std::vector<Buffer> free_;  // guarded by mutex_
};

}  // namespace forebay::client
