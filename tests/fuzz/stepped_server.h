// SPDX-License-Identifier: Apache-2.0
// A real server that serves in the thread of its caller and only when it is told to, so that an input always leads to
// the same events in the same order. Its workers are waited for, or held back so that their results come late.
#pragma once

#include <condition_variable>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "base/log.h"
#include "staging-servers/administration/audit.h"
#include "staging-servers/daemon/server.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sparse_device.h"
#include "tests/support/temporary_directory.h"

namespace forebay::fuzz {

/// Keeps workers waiting while it is closed.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;  // guarded by mutex_
};

class SteppedServer {
 public:
  /// `port`: for clients of other nodes; 0: there are none.
  explicit SteppedServer(std::int64_t flush_interval_ms, std::uint16_t port = 0) {
    log::set_level(log::Level::error);
    options_.root = directory_.path("root");
    options_.socket_path = directory_.path("socket");
    options_.capacity_bytes = std::uint64_t{64} << 20;
    options_.flush_interval_ms = flush_interval_ms;
    options_.restart_grace_ms = 3'600'000;
    options_.checked_per_turn = server::ServerOptions::check_all;
    options_.door_limits.turn_ms = 3'600'000;  // what happens depends on the input alone
    if (port != 0) options_.listen = "127.0.0.1:" + std::to_string(port);
  }
  ~SteppedServer() { crash(); }
  SteppedServer(const SteppedServer&) = delete;
  SteppedServer& operator=(const SteppedServer&) = delete;

  server::Server& server() noexcept { return *server_; }
  const server::ServerOptions& options() const noexcept { return options_; }

  Result<void> start() {
    auto started = server::Server::start(device_, options_);
    if (!started) return fail(std::move(started.error()));
    server_ = std::move(*started);
    return {};
  }
  /// Handles what has arrived by now.
  void turn() {
    server_->loop().post([this] { server_->loop().stop(); });
    server_->run();
  }
  /// Jobs that come from now on wait.
  void hold_workers() {
    if (gate_) return;
    gate_ = std::make_shared<Gate>();
    const auto hold = [this](server::Worker& worker, unsigned threads) {
      for (unsigned thread = 0; thread < threads; ++thread) worker.add([gate = gate_] { gate->wait(); });
    };
    hold(server_->sync_worker(), server::Server::sync_threads);
    hold(server_->errand_worker(), 1);
    hold(server_->side_worker(), server::Server::side_threads);
  }
  void let_workers_go() {
    if (gate_) gate_->open();
    gate_.reset();
  }
  /// Lets workers and loop go on until nothing more is under way: after a sync of segments comes one of the journal,
  /// then what was waiting for it.
  void settle(int rounds = 3) {
    let_workers_go();
    for (; rounds > 0; --rounds) {
      std::promise<void> done;
      server_->errand_worker().add([&done] { done.set_value(); });
      done.get_future().wait();
      server_->sync_worker().finish();
      server_->side_worker().finish();
      turn();
    }
  }
  void crash() {
    let_workers_go();
    server_.reset();
  }
  void shut_down() {
    let_workers_go();
    require(server_->flush_everything().has_value());
    server_.reset();
  }
  /// The next start is the first after a boot.
  void pretend_boot() { std::ofstream(options_.root + "/boot-id") << "another boot\n"; }

  bool has_problem() {
    for (const Finding& finding : server::audit_accounting(*server_)) {
      if (finding.severity != Finding::Severity::problem) continue;
      problem_ = finding.where + ": " + finding.what;
      return true;
    }
    return false;
  }
  /// The one that has_problem() found.
  const std::string& problem() const noexcept { return problem_; }

 private:
  testing::TemporaryDirectory directory_ = testing::TemporaryDirectory::in_memory();
  SparseDevice device_;
  server::ServerOptions options_;
  std::shared_ptr<Gate> gate_;
  std::unique_ptr<server::Server> server_;
  std::string problem_;
};

}  // namespace forebay::fuzz
