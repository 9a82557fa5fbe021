// SPDX-License-Identifier: Apache-2.0
// Running without Python's lock (GIL), in threads that may outlive the interpreter.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include <nanobind/nanobind.h>

namespace forebay::python {

/// True on the thread that Python runs signal handlers on.
inline bool is_main_thread() noexcept {
  return ::gettid() == ::getpid();
}

/// Gives the GIL back for its lifetime. nanobind's own guard must not be used for waits: when the interpreter ends
/// meanwhile, Python ends every other thread that asks for the GIL by unwinding it, which no C++ frame may do by
/// chance. Such a thread is kept here until the process is gone.
class WithoutGil {
 public:
  WithoutGil() noexcept : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      while (true) {
        ::pause();
      }
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace forebay::python
