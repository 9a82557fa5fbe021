// SPDX-License-Identifier: Apache-2.0
// Bytes of a step on a segment as Python's buffer protocol hands them to NumPy: no copy, alive as long as anyone looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <nanobind/nanobind.h>

#include "handle.h"

namespace forebay::python {

class Memory {
 public:
  /// Read-only bytes; `owner` keeps their step and mapping.
  Memory(const std::byte* data, std::size_t size_bytes, std::shared_ptr<const void> owner)
      : data_(const_cast<std::byte*>(data)), size_bytes_(size_bytes), writable_(false), owner_(std::move(owner)) {}
  /// Bytes of a step that is being written.
  Memory(std::byte* data, std::size_t size_bytes, std::shared_ptr<const void> owner)
      : data_(data), size_bytes_(size_bytes), writable_(true), owner_(std::move(owner)) {}
  ~Memory() { let_go(std::move(owner_), generation_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// From now on buffers are read-only.
  void seal() { writable_ = false; }
  std::size_t size_bytes() const { return size_bytes_; }

  static int get_buffer(PyObject* self, Py_buffer* view, int flags);

 private:
  std::byte* data_;  ///< written through only while writable_
  std::size_t size_bytes_;
  bool writable_;
  std::shared_ptr<const void> owner_;
  const std::uint64_t generation_ = fork_generation();
};

}  // namespace forebay::python
