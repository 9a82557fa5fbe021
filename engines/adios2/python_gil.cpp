// SPDX-License-Identifier: Apache-2.0
#include "python_gil.h"

#include <dlfcn.h>

#include <array>
#include <memory>

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
  bool complete = false;

  PythonApi() {
    complete = find("Py_IsInitialized", is_initialized) && find("PyGILState_Check", holds_gil) &&
               find("PyEval_SaveThread", save_thread) && find("PyEval_RestoreThread", restore_thread) &&
               find("PyErr_CheckSignals", check_signals) && find("PyErr_Fetch", fetch_exception) &&
               find("PyErr_Restore", restore_exception) && find("Py_AddPendingCall", add_pending_call) &&
               find("PyErr_SetInterrupt", set_interrupt) && find("PyErr_GetExcInfo", handled_exception) &&
               find("Py_DecRef", release) && find("_Py_NoneStruct", none) &&
               find("PyObject_GetAttrString", attribute) && find("PyObject_Str", to_text) &&
               find("PyUnicode_AsUTF8", utf8_of) && find("PyErr_Clear", clear_exception);
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

// The exception that the calling Python code handles. The GIL is held.
class HandledException {
 public:
  HandledException() { python().handled_exception(&objects_[0], &objects_[1], &objects_[2]); }
  ~HandledException() {
    for (void* object : objects_) python().release(object);
  }
  HandledException(const HandledException&) = delete;
  HandledException& operator=(const HandledException&) = delete;

  bool is_there() const { return objects_[1] != nullptr && objects_[1] != python().none; }
  std::string text() const {
    const PythonApi& api = python();
    const std::string name = utf8(api.attribute(objects_[0], "__name__"));
    const std::string what = utf8(api.to_text(objects_[1]));
    return what.empty() ? name : name + ": " + what;
  }

 private:
  /// Of a str, or of nothing if it could not be made.
  static std::string utf8(void* object) {
    const PythonApi& api = python();
    const char* bytes = object == nullptr ? nullptr : api.utf8_of(object);
    std::string copy = bytes == nullptr ? "" : bytes;
    if (bytes == nullptr) api.clear_exception();
    api.release(object);
    return copy;
  }

  std::array<void*, 3> objects_{};
};

}  // namespace

GilReleased::GilReleased() {
  if (current_scope != nullptr || !called_from_python()) return;
  thread_state_ = python().save_thread();
  current_scope = this;
}

GilReleased::~GilReleased() {
  if (thread_state_ == nullptr) return;
  const PythonApi& api = python();
  api.restore_thread(thread_state_);
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
  api.restore_thread(scope->thread_state_);
  const bool raised = api.check_signals() != 0;
  if (raised) api.fetch_exception(&scope->exception_[0], &scope->exception_[1], &scope->exception_[2]);
  scope->thread_state_ = api.save_thread();
  return raised;
}

bool called_from_python() {
  const PythonApi& api = python();
  return api.complete && api.is_initialized() != 0 && api.holds_gil() != 0;
}

bool python_exception_in_flight() {
  if (!called_from_python()) return false;
  return HandledException().is_there();
}

std::string python_exception_text() {
  if (!called_from_python()) return {};
  const HandledException handled;
  return handled.is_there() ? handled.text() : std::string();
}

}  // namespace forebay::engine
