// SPDX-License-Identifier: Apache-2.0
// Native errors as Python exceptions: forebay.errors has the class for each code.
#pragma once

#include <string>
#include <utility>

#include <nanobind/nanobind.h>

#include <forebay/result.h>

namespace forebay::python {

/// Raises the exception that belongs to `error`. The GIL is held.
[[noreturn]] void raise(const Error& error);

/// An exception that a signal handler left behind (KeyboardInterrupt) goes before any result. The GIL is held.
inline void raise_if_signalled() {
  if (PyErr_Occurred() != nullptr) {
    throw nanobind::python_error();
  }
}

/// The value of `result`, or its exception. The GIL is held.
template <class T>
T unwrap(Result<T>&& result) {
  raise_if_signalled();
  if (!result) {
    raise(result.error());
  }
  if constexpr (!std::is_void_v<T>) {
    return std::move(*result);
  }
}

}  // namespace forebay::python
