// SPDX-License-Identifier: Apache-2.0
#include "python_gil.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace forebay::engine {
namespace {

// The parts of Python's C API that are needed, found at run time: the plugin also serves processes without Python.
struct PythonApi {
  int (*is_initialized)() = nullptr;
  int (*holds_gil)() = nullptr;
  void* (*save_thread)() = nullptr;
  void (*restore_thread)(void*) = nullptr;
  int (*check_signals)() = nullptr;
  void (*fetch_exception)(void**, void**, void**) = nullptr;
  void (*restore_exception)(void*, void*, void*) = nullptr;
  int (*add_pending_call)(int (*)(void*), void*) = nullptr;
  void (*set_interrupt)() = nullptr;
  void (*handled_exception)(void**, void**, void**) = nullptr;
  void (*release)(void*) = nullptr;
  const void* none = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;
  void* (*to_text)(void*) = nullptr;
  const char* (*utf8_of)(void*) = nullptr;
  void (*clear_exception)() = nullptr;
  void* (*calling_frame)() = nullptr;
  void* (*values_of)(void*) = nullptr;
  std::ptrdiff_t (*size_of)(void*) = nullptr;
  void* (*item_of)(void*, std::ptrdiff_t) = nullptr;
  int (*has_buffer)(void*) = nullptr;
  int (*get_buffer)(void*, void*, int) = nullptr;
  void (*release_buffer)(void*) = nullptr;
  bool complete = false;
  bool sees_buffers = false;

  PythonApi() {
    complete = find("Py_IsInitialized", is_initialized) && find("PyGILState_Check", holds_gil) &&
               find("PyEval_SaveThread", save_thread) && find("PyEval_RestoreThread", restore_thread) &&
               find("PyErr_CheckSignals", check_signals) && find("PyErr_Fetch", fetch_exception) &&
               find("PyErr_Restore", restore_exception) && find("Py_AddPendingCall", add_pending_call) &&
               find("PyErr_SetInterrupt", set_interrupt) && find("PyErr_GetExcInfo", handled_exception) &&
               find("Py_DecRef", release) && find("_Py_NoneStruct", none) &&
               find("PyObject_GetAttrString", attribute) && find("PyObject_Str", to_text) &&
               find("PyUnicode_AsUTF8", utf8_of) && find("PyErr_Clear", clear_exception);
    sees_buffers = complete && find("PyEval_GetFrame", calling_frame) && find("PyMapping_Values", values_of) &&
                   find("PySequence_Size", size_of) && find("PySequence_GetItem", item_of) &&
                   find("PyObject_CheckBuffer", has_buffer) && find("PyObject_GetBuffer", get_buffer) &&
                   find("PyBuffer_Release", release_buffer);
  }

  template <class Symbol>
  static bool find(const char* name, Symbol& symbol) {
    symbol = reinterpret_cast<Symbol>(dlsym(RTLD_DEFAULT, name));
    return symbol != nullptr;
  }
};

const PythonApi& python() {
  static const PythonApi api;
  return api;
}

thread_local GilReleased* current_scope = nullptr;

using RaisedException = std::array<void*, 3>;

int raise_pending(void* argument) {
  const std::unique_ptr<RaisedException> raised(static_cast<RaisedException*>(argument));
  python().restore_exception((*raised)[0], (*raised)[1], (*raised)[2]);
  return -1;
}

// The text of a str, which it releases; empty for nothing.
std::string utf8(void* object) {
  const PythonApi& api = python();
  const char* bytes = object == nullptr ? nullptr : api.utf8_of(object);
  std::string copy = bytes == nullptr ? "" : bytes;
  if (bytes == nullptr) api.clear_exception();
  api.release(object);
  return copy;
}

// Takes the GIL back. Once Python is ending it gives the GIL to no other thread: it ends the thread in the middle of
// the call, which C++ code around it does not survive. The thread then waits here for the end of the process.
void take_back(void* thread_state) {
  const PythonApi& api = python();
  try {
    api.restore_thread(thread_state);
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// An object of Python's, which this owns.
class PythonObject {
 public:
  explicit PythonObject(void* object) : object_(object) {
    if (object_ == nullptr) python().clear_exception();
  }
  ~PythonObject() {
    if (object_ != nullptr) python().release(object_);
  }
  PythonObject(PythonObject&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PythonObject& operator=(PythonObject&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  void* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  void* object_;
};

// How many bytes `object` has if its memory begins at `memory`, else 0.
std::size_t bytes_at(void* object, const void* memory) {
  const PythonApi& api = python();
  if (api.has_buffer(object) == 0) return 0;
  // Python's Py_buffer begins like this; all of it is shorter.
  struct Buffer {
    void* memory;
    void* object;
    std::ptrdiff_t bytes;
    std::array<std::byte, 232> others;
  } buffer{};
  if (api.get_buffer(object, &buffer, 0) != 0) {
    api.clear_exception();
    return 0;
  }
  const std::size_t bytes = buffer.memory == memory ? static_cast<std::size_t>(buffer.bytes) : 0;
  api.release_buffer(&buffer);
  return bytes;
}

// What shall run after calls, by number.
class AfterCalls {
 public:
  static AfterCalls& instance() {
    // Never destroyed: Python may end after static objects.
    static AfterCalls& calls = *new AfterCalls;
    return calls;
  }
  std::uint64_t add(std::function<void()> function) {
    const std::lock_guard lock(mutex_);
    functions_.emplace(++last_, std::move(function));
    return last_;
  }
  void remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    functions_.erase(number);
  }
  void run(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(number);
    if (found == functions_.end()) return;
    const auto function = std::move(found->second);
    functions_.erase(found);
    function();
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::function<void()>> functions_;
  std::uint64_t last_ = 0;
};

int run_pending(void* number) noexcept {
  try {
    AfterCalls::instance().run(reinterpret_cast<std::uint64_t>(number));
  } catch (...) {
    // It is tried again with the engine's next call, which has a caller to throw to.
  }
  return 0;
}

}  // namespace

GilReleased::GilReleased() {
  if (current_scope != nullptr || !called_from_python()) return;
  thread_state_ = python().save_thread();
  current_scope = this;
}

GilReleased::~GilReleased() {
  if (thread_state_ == nullptr) return;
  const PythonApi& api = python();
  take_back(thread_state_);
  current_scope = nullptr;
  if (exception_[0] == nullptr) return;
  auto raised = std::make_unique<RaisedException>(RaisedException{exception_[0], exception_[1], exception_[2]});
  if (api.add_pending_call(raise_pending, raised.get()) == 0) {
    static_cast<void>(raised.release());
  } else {
    // Python's queue of pending calls is full: the signal is raised anew instead.
    api.set_interrupt();
  }
}

bool interrupt_requested() {
  GilReleased* scope = current_scope;
  if (scope == nullptr) return false;
  if (scope->exception_[0] != nullptr) return true;
  const PythonApi& api = python();
  take_back(scope->thread_state_);
  const bool raised = api.check_signals() != 0;
  if (raised) api.fetch_exception(&scope->exception_[0], &scope->exception_[1], &scope->exception_[2]);
  scope->thread_state_ = api.save_thread();
  return raised;
}

bool called_from_python() {
  const PythonApi& api = python();
  return api.complete && api.is_initialized() != 0 && api.holds_gil() != 0;
}

std::uint64_t run_after_call(std::function<void()> function) {
  const std::uint64_t number = AfterCalls::instance().add(std::move(function));
  if (python().add_pending_call(run_pending, reinterpret_cast<void*>(number)) == 0) return number;
  AfterCalls::instance().remove(number);
  return 0;
}

void forget_after_call(std::uint64_t number) {
  if (number != 0) AfterCalls::instance().remove(number);
}

std::size_t python_buffer_bytes(const void* memory) {
  const PythonApi& api = python();
  if (!api.sees_buffers) return 0;
  // ADIOS2's own functions are two deep.
  constexpr int frames_max = 4;
  void* const innermost = api.calling_frame();
  if (innermost == nullptr) return 0;
  PythonObject outer(nullptr);
  void* frame = innermost;
  for (int i = 0; i < frames_max && frame != nullptr && frame != api.none; ++i) {
    const PythonObject names(api.attribute(frame, "f_locals"));
    const PythonObject values(names ? api.values_of(names.get()) : nullptr);
    const std::ptrdiff_t count = values ? api.size_of(values.get()) : 0;
    for (std::ptrdiff_t k = 0; k < count; ++k) {
      const PythonObject value(api.item_of(values.get(), k));
      if (!value) continue;
      if (const std::size_t bytes = bytes_at(value.get(), memory); bytes != 0) return bytes;
    }
    outer = PythonObject(api.attribute(frame, "f_back"));
    frame = outer.get();
  }
  return 0;
}

HandledException HandledException::now() {
  HandledException handled;
  if (!called_from_python()) return handled;
  const PythonApi& api = python();
  api.handled_exception(&handled.objects_[0], &handled.objects_[1], &handled.objects_[2]);
  if (handled.objects_[1] == api.none) handled = HandledException();
  return handled;
}

HandledException::~HandledException() {
  // Another thread of the program may end the engine; what it held then stays.
  if (objects_[1] == nullptr || !called_from_python()) return;
  for (void* object : objects_) python().release(object);
}

HandledException::HandledException(HandledException&& other) noexcept {
  std::swap(objects_, other.objects_);
}

HandledException& HandledException::operator=(HandledException&& other) noexcept {
  std::swap(objects_, other.objects_);
  return *this;
}

std::string HandledException::text() const {
  if (!is_there() || !called_from_python()) return {};
  const PythonApi& api = python();
  const std::string name = utf8(api.attribute(objects_[0], "__name__"));
  const std::string what = utf8(api.to_text(objects_[1]));
  return what.empty() ? name : name + ": " + what;
}

}  // namespace forebay::engine
