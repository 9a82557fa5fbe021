// SPDX-License-Identifier: Apache-2.0
// Has the file system say of files/ what the shares of reservations say: passes over each files/, in slices, so that
// one user's tree does not hold up others, until a pass finds nothing to change. See docs/design/sharing.md.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "loop/event_loop.h"
#include "loop/worker.h"
#include "storage/files_access.h"

namespace forebay::server {

class Reservation;
class ReservationHost;
class ReservationTable;

class FilesSharing {
 public:
  using Ended = std::function<void(const Result<void>&)>;

  FilesSharing(ReservationHost& host, ReservationTable& table, Worker& errand_worker, Worker& side_worker)
      : host_(host), table_(table), errand_worker_(errand_worker), side_worker_(side_worker) {}

  /// Begins anew with the shares that the reservation has now. `ended` after the first pass; what that left, the
  /// reservation knows then. More passes follow by themselves.
  void begin(const std::string& name, Ended ended);
  /// Lets what is the owner's, at `path` below files/, count as made in the reservation.
  void adopt(const std::string& name, const std::string& path, Ended ended);
  /// Ends what goes on in the reservation's files. False if nothing does; else `then` follows when it has ended.
  bool stop(const std::string& name, EventLoop::Task then);
  /// The reservation is gone.
  void forget(const std::string& name);

 private:
  using Begin = std::function<Result<std::unique_ptr<storage::FilesAccessPass>>()>;
  /// A pass that a worker makes.
  struct Pass {
    std::string name;
    uid_t owner = 0;  ///< whose turns it takes
    Begin begin;
    std::unique_ptr<storage::FilesAccessPass> access;
    std::function<void(const Result<storage::FilesAccessReport>&)> ended;
    std::atomic<bool> stopped = false;
    const std::shared_ptr<const bool> wanted = std::make_shared<const bool>(true);
  };
  struct Work {
    std::shared_ptr<Pass> pass;  ///< that goes on
    std::vector<EventLoop::Task> after;
    std::optional<EventLoop::TimerId> next;
    std::int64_t pause_ms = 0;
  };

  void start(const reservation::ReservationT& record, Begin begin,
             std::function<void(const Result<storage::FilesAccessReport>&)> ended);
  /// The next slice, when it is the owner's turn.
  void take_turn(const std::shared_ptr<Pass>& pass);
  /// In a worker.
  void advance(const std::shared_ptr<Pass>& pass);
  void end(const std::shared_ptr<Pass>& pass, Result<storage::FilesAccessReport> report);
  void pass_over(const std::string& name, const Ended& ended);
  void pass_ended(const std::string& name, const Result<storage::FilesAccessReport>& report, const Ended& ended);
  void pass_later(const std::string& name);
  /// No pass finds anything to change: at the next start none is needed.
  void settle(const std::string& name);

  ReservationHost& host_;
  ReservationTable& table_;
  Worker& errand_worker_;
  Worker& side_worker_;
  std::map<std::string, Work> works_;
};

}  // namespace forebay::server
