// SPDX-License-Identifier: Apache-2.0
// How a writer says goodbye that ends without close(): when it is let go of, or when its process exits in order with
// the writer still open. A process that is killed says nothing, and that tells the server what happened.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace forebay::client {

class Connection;

/// A writer's entry among those of this process. At exit, entries tell their servers after all other code has run, so
/// that a destructor of the program may still close the writer.
class OpenWriter {
 public:
  OpenWriter() noexcept;
  ~OpenWriter();
  OpenWriter(const OpenWriter&) = delete;
  OpenWriter& operator=(const OpenWriter&) = delete;

  /// The connection that it has now.
  void use(std::shared_ptr<Connection> connection) noexcept;
  /// What went wrong, and in which step. The first one counts.
  void note_failure(std::string_view what, std::optional<std::uint64_t> step);
  void forget_failure() noexcept;
  /// Tells the server now. `failing`: without a noted failure, too, an exception is the reason.
  void leave(bool failing) noexcept;
  /// It has closed, or the server knows its end: nothing is told.
  void end() noexcept;

  /// Those of this process that are still open leave. Called at its exit.
  static void leave_all() noexcept;

 private:
  void tell(bool failing) noexcept;

  const pid_t process_;
  // Guarded by the mutex of all entries.
  OpenWriter* previous_ = nullptr;
  OpenWriter* next_ = nullptr;
  std::shared_ptr<Connection> connection_;  // null: not open
  std::string failure_;
  bool failed_ = false;
  std::optional<std::uint64_t> failure_step_;
};

}  // namespace forebay::client
