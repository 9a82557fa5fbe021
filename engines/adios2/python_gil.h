// SPDX-License-Identifier: Apache-2.0
// Waiting inside a Python process: ADIOS2's bindings keep Python's lock (GIL) and its signals to themselves while they
// call an engine. Here the engine lets the other threads run and Ctrl-C through. Without Python in the process nothing
// happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace forebay::engine {

/// Releases the GIL, if the calling thread holds it, until the end of the scope. Not nested.
class GilReleased {
 public:
  GilReleased();
  /// Takes the GIL back. If a signal handler raised meanwhile, its exception (KeyboardInterrupt, as a rule) is raised
  /// in the main thread as soon as the interpreter runs again.
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  friend bool interrupt_requested();
  void* thread_state_ = nullptr;
  void* exception_[3] = {};  // type, value, traceback
};

/// forebay::InterruptHook: runs pending Python signal handlers; true if one raised.
bool interrupt_requested();

/// True if the call comes from Python: the calling thread holds the GIL.
bool called_from_python();

/// Runs `function` once in Python's main thread, with the GIL, before the Python code there goes on after its present
/// call. Returns a number for forget_after_call; 0: it will not run. The caller holds the GIL.
std::uint64_t run_after_call(std::function<void()> function);

/// It does not run any more once this returns.
void forget_after_call(std::uint64_t number);

/// How many bytes the Python object has whose memory begins at `memory`, if one that the calling Python functions name
/// does; else 0. The caller holds the GIL.
std::size_t python_buffer_bytes(const void* memory);

/// The exception that Python code of the calling thread handles, for example one by which a `with` block is being left.
/// It is held, so that no other one can be taken for it.
class HandledException {
 public:
  /// The one that is handled now; none outside of Python.
  static HandledException now();
  HandledException() = default;
  ~HandledException();
  HandledException(HandledException&& other) noexcept;
  HandledException& operator=(HandledException&& other) noexcept;

  bool is_there() const { return objects_[1] != nullptr; }
  bool is_same(const HandledException& other) const { return objects_[1] == other.objects_[1]; }
  /// For people: "ValueError: no such file"; empty if there is none. Runs its __str__.
  std::string text() const;

 private:
  void* objects_[3] = {};  // type, value, traceback
};

}  // namespace forebay::engine
