// SPDX-License-Identifier: Apache-2.0
// A server that runs in this process on a disk that does as it is told. Clients of this process may use the same disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <forebay/result.h>

#include "staging-servers/daemon/server.h"
#include "tests/support/faulty_device.h"
#include "tests/support/temporary_directory.h"

namespace forebay::testing {

class ServerOnDisk {
 public:
  /// Points this process's environment at a root of its own, as start() does again; nothing runs yet.
  ServerOnDisk();
  /// Ends the server without flushing anything.
  ~ServerOnDisk();
  ServerOnDisk(const ServerOnDisk&) = delete;
  ServerOnDisk& operator=(const ServerOnDisk&) = delete;

  Result<void> start();
  bool runs() const noexcept { return thread_.joinable(); }
  /// Ends the server without flushing anything.
  void stop();
  /// Ends it as `forebay down` does.
  Result<void> flush_and_stop();
  /// What the kernel says of itself after the machine was down. The server does not run.
  void take_for_another_boot() const;
  /// Stops and starts; `boot`: on a machine that was down.
  Result<void> restart(bool boot, const std::function<void()>& meanwhile = [] {});
  /// Makes a reservation.
  Result<void> create(const std::string& name, std::uint64_t capacity_bytes);
  /// How long servers that are started from now on wait for writers to come back; without it hardly at all, for whoever
  /// opens their streams waits as long.
  void set_restart_grace_ms(std::int64_t grace_ms) noexcept { restart_grace_ms_ = grace_ms; }
  /// How often servers that are started from now on make committed steps durable; without it on request only, so that
  /// the order of the disk's operations is the clients'.
  void set_flush_interval_ms(std::int64_t interval_ms) noexcept { flush_interval_ms_ = interval_ms; }
  /// How much servers that are started from now on check in each turn of their loops; without it everything.
  void set_checked_per_turn(std::uint64_t items) noexcept { checked_per_turn_ = items; }
  /// From now on clients of this process write and read through the disk.
  void share_with_clients();

  FaultyDevice& disk() noexcept { return disk_; }
  std::string root() const { return directory_.path("root"); }

  /// Copies all that is on the disk to `image`, which does not exist. The server does not run.
  void copy_to(const std::string& image) const;
  /// Makes the disk hold that, as if all of it were synced, and plans nothing. Ends the server first.
  void restore(const std::string& image);

 private:
  void point_environment_here() const;

  TemporaryDirectory directory_ = TemporaryDirectory::in_memory();
  TemporaryDirectory limbo_ = TemporaryDirectory::in_memory();
  FaultyDevice disk_{limbo_.path()};
  std::int64_t restart_grace_ms_ = 20;
  std::int64_t flush_interval_ms_ = -1;
  std::uint64_t checked_per_turn_ = server::ServerOptions::check_all;
  std::unique_ptr<server::Server> server_;
  std::thread thread_;
};

}  // namespace forebay::testing
