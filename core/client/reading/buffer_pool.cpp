// SPDX-License-Identifier: Apache-2.0
#include "client/reading/buffer_pool.h"

#include <utility>

namespace forebay::client {

namespace {

constexpr std::size_t free_buffers_max = 4;

}  // namespace

BufferPool::BufferPool() {
  // Buffers come back from destructors, which must need no memory.
  free_.reserve(free_buffers_max);
}

BufferPool::Buffer BufferPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(buffer_bytes);
  Buffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void BufferPool::give_back(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < free_buffers_max) free_.push_back(std::move(buffer));
}

}  // namespace forebay::client
