// SPDX-License-Identifier: Apache-2.0
// A native object as Python threads share it: one call at a time without the GIL, interruptible, harmless after fork().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include <nanobind/nanobind.h>

#include <forebay/writer.h>

#include "gil.h"
#include "native_error.h"

namespace forebay::python {

/// How often this process has come out of fork() as a child. A handle of another count belongs to the parent: its
/// connection must not be used, not even to say goodbye.
std::uint64_t fork_generation() noexcept;
/// Starts the count; called once, when the module is loaded.
void count_forks();

/// Lets `object` go without the GIL, because its end may wait for a lock whose holder waits for the GIL. In a forked
/// child it is leaked instead. The GIL is held.
template <class Pointer>
void let_go(Pointer object, std::uint64_t generation) {
  if (!object) {
    return;
  }
  if (generation != fork_generation()) {
    new Pointer(std::move(object));
  } else if (nanobind::is_alive()) {
    const WithoutGil without_gil;
    object = nullptr;
  }
}

/// What a call that waits is told by: signals, and other threads that want the same object meanwhile.
struct Attention {
  std::atomic<int> wanted{0};
  /// The call that this thread is in makes way. Per thread, because steps ask by the hook of the reader that gave them.
  static inline thread_local bool yields = false;
  /// Set by another thread where nobody wants the result of this thread's calls any more; null: nobody can.
  static inline thread_local const std::atomic<bool>* given_up = nullptr;

  static bool is_given_up() { return given_up != nullptr && given_up->load(); }

  /// Runs Python's signal handlers on the main thread; also true if a wait that yields should make way.
  static InterruptHook hook(std::shared_ptr<Attention> attention) {
    return [attention = std::move(attention)] {
      if (is_given_up() || (yields && attention->wanted.load() > 0)) {
        return true;
      }
      // Other threads have no signals to handle, and must not ask for the GIL when the interpreter ends.
      if (!is_main_thread()) {
        return false;
      }
      const nanobind::gil_scoped_acquire with_gil;
      return PyErr_CheckSignals() != 0;
    };
  }
};

/// Calls a function at the end of its life.
template <class Function>
class AtEnd {
 public:
  explicit AtEnd(Function function) : function_(std::move(function)) {}
  ~AtEnd() { function_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Function function_;
};

/// Owns a native object that takes one thread at a time. Every call releases the GIL before it takes the lock, and
/// gives the lock back before it takes the GIL, so that the two cannot block each other.
template <class T>
class Handle {
 public:
  Handle(std::unique_ptr<T> object, std::shared_ptr<Attention> attention, const char* what)
      : object_(std::move(object)), attention_(std::move(attention)), what_(what) {}
  ~Handle() { let_go(std::move(object_), generation_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  /// The result of `function(T&)`, or its exception.
  template <class Function>
  auto call(Function function) {
    check_fork();
    auto result = without_gil(function);
    return unwrap(std::move(result));
  }

  /// As `call`, for a wait that may last: other threads' calls interrupt it and come first, then it goes on. `again`
  /// says so by being called once more. Gives std::nullopt if another thread closed the handle.
  template <class Function>
  auto wait(Function again) -> std::optional<typename std::invoke_result_t<Function, T&>::value_type> {
    check_fork();
    while (true) {
      auto result = yielding_without_gil(again);
      raise_if_signalled();
      if (!result) {
        return std::nullopt;
      }
      if (*result) {
        return std::move(**result);
      }
      if (result->error().code != ErrorCode::cancelled || Attention::is_given_up()) {
        raise(result->error());
      }
    }
  }

  /// Ends the object's life; later calls fail. Idempotent.
  void close() {
    if (generation_ != fork_generation()) {
      return;
    }
    std::unique_ptr<T> last;
    const WithoutGil released;
    ++attention_->wanted;
    {
      const std::scoped_lock lock(mutex_);
      last = std::move(object_);
      --attention_->wanted;
    }
    turn_.notify_all();
    last.reset();
  }

 private:
  void check_fork() const {
    if (generation_ != fork_generation()) {
      raise(
          {ErrorCode::disconnected, "it was opened before fork(): open the stream again in the child process", what_});
    }
  }

  template <class Function>
  auto without_gil(Function& function) -> std::invoke_result_t<Function, T&> {
    const WithoutGil released;
    // Behind the lock's end, also where the call throws: who made way goes on.
    const AtEnd tell([this] { turn_.notify_all(); });
    ++attention_->wanted;
    const std::scoped_lock lock(mutex_);
    --attention_->wanted;
    if (!object_) {
      return fail(ErrorCode::invalid_argument, "it is closed: open it again", what_);
    }
    return function(*object_);
  }

  template <class Function>
  auto yielding_without_gil(Function& function) -> std::optional<std::invoke_result_t<Function, T&>> {
    const WithoutGil released;
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [this] { return attention_->wanted.load() == 0; });
    if (!object_) {
      return std::nullopt;
    }
    Attention::yields = true;
    const AtEnd yields_no_more([] { Attention::yields = false; });
    return function(*object_);
  }

  const std::uint64_t generation_ = fork_generation();
  std::mutex mutex_;
  std::condition_variable turn_;  ///< a call that `wait` made way for is over
  std::unique_ptr<T> object_;     ///< guarded by mutex_
  std::shared_ptr<Attention> attention_;
  const char* what_;
};

}  // namespace forebay::python
