// SPDX-License-Identifier: Apache-2.0
// A real server in a child process, under a root of its own, that tests can kill and start again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include <forebay/admin.h>

#include "base/descriptor.h"

namespace forebay::testing {

class ServerProcess {
 public:
  /// Starts a server on an empty root and points this process's environment at it.
  ServerProcess();
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// `failing_allocation`: which one of any of its threads (from 1) finds no memory, and ends it; 0: none. Then the
  /// thread that makes steps durable works all the time.
  void start(std::uint64_t failing_allocation = 0);
  bool has_ended() const;
  /// SIGKILL: the server loses its memory, as in a crash.
  void kill();
  /// SIGSTOP and SIGCONT.
  void suspend();
  void resume();

  const std::string& root() const noexcept { return root_; }
  /// Makes a reservation.
  ReservationInfo create(const std::string& name, std::uint64_t capacity_bytes);

 private:
  void send(int signal);

  std::string root_;
  /// To and from a process that was forked when this one had a single thread, and forks the servers: in a child of a
  /// process with several threads, locks may stay locked for ever.
  Descriptor orders_;
  Descriptor answers_;
  pid_t helper_ = -1;
  Descriptor server_;  ///< its pidfd
};

}  // namespace forebay::testing
