// SPDX-License-Identifier: Apache-2.0
#include "client/writing/open_writers.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <utility>

#include "client/connection/connection.h"

namespace forebay::client {
namespace {

// Neither has a destructor that runs at exit: entries may be told of after all others have.
constinit std::mutex entries_mutex;
constinit OpenWriter* first_entry = nullptr;

// A forked child finds the mutex free.
void hold_over_forks() {
  static const int handled =
      pthread_atfork([] { entries_mutex.lock(); }, [] { entries_mutex.unlock(); }, [] { entries_mutex.unlock(); });
  (void)handled;
}

// Behind every destructor of a static object, those of the program as well.
__attribute__((destructor)) void leave_at_exit() {
  OpenWriter::leave_all();
}

}  // namespace

OpenWriter::OpenWriter() noexcept : process_(::getpid()) {
  hold_over_forks();
  const std::lock_guard lock(entries_mutex);
  next_ = std::exchange(first_entry, this);
  if (next_ != nullptr) next_->previous_ = this;
}

OpenWriter::~OpenWriter() {
  const std::lock_guard lock(entries_mutex);
  (previous_ != nullptr ? previous_->next_ : first_entry) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void OpenWriter::use(std::shared_ptr<Connection> connection) noexcept {
  // The old one ends behind the lock.
  const std::lock_guard lock(entries_mutex);
  connection_.swap(connection);
}

void OpenWriter::note_failure(std::string_view what, std::optional<std::uint64_t> step) {
  std::string text(what);
  const std::lock_guard lock(entries_mutex);
  if (std::exchange(failed_, true)) return;
  failure_ = std::move(text);
  failure_step_ = step;
}

void OpenWriter::forget_failure() noexcept {
  const std::lock_guard lock(entries_mutex);
  failed_ = false;
}

void OpenWriter::tell(bool failing) noexcept try {
  // A forked child has the parent's socket, but nothing to say on it.
  if (!connection_ || process_ != ::getpid()) return;
  wire::WriterLeaveT message;
  message.reason = failed_ || failing ? wire::LeaveReason::failed : wire::LeaveReason::left;
  if (failed_) {
    message.text = failure_;
    if (failure_step_) message.step = *failure_step_;
  }
  // Where it fails, the end of the connection has to do.
  (void)connection_->tell(protocol::MessageType::writer_leave, message);
  connection_.reset();
} catch (const std::bad_alloc&) {
}

void OpenWriter::leave(bool failing) noexcept {
  const std::lock_guard lock(entries_mutex);
  tell(failing);
}

void OpenWriter::end() noexcept {
  use(nullptr);
}

void OpenWriter::leave_all() noexcept {
  // A thread that is opening or closing one may have been stopped for good with the lock.
  const std::unique_lock lock(entries_mutex, std::try_to_lock);
  if (!lock) return;
  for (OpenWriter* entry = first_entry; entry != nullptr; entry = entry->next_) entry->tell(false);
}

}  // namespace forebay::client
