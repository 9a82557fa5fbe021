// SPDX-License-Identifier: Apache-2.0
// The staging server of one node: its root, its socket, its reservations and its clients.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <forebay/admin.h>

#include "base/device.h"
#include "daemon/connection.h"
#include "daemon/event_loop.h"
#include "daemon/worker.h"
#include "readers/pin_table.h"
#include "readers/reader_presence.h"
#include "reservations/reservation.h"
#include "storage/reservation_store.h"

namespace forebay::server {

class ReaderSession;

struct ServerOptions {
  std::string root;
  std::string socket_path;                      ///< empty: a short path made from the root
  std::optional<std::uint64_t> capacity_bytes;  ///< of the pool; unset: 80 % of what is free at the first start
  std::int64_t flush_interval_ms =
      500;  ///< how long a committed step may wait to be made durable; < 0: only on request
  std::int64_t restart_grace_ms = 60'000;  ///< how long writer groups have to come back after a restart of the server
};

/// invalid_argument, with the rule, if this cannot be a reservation's name.
Result<void> check_reservation_name(const std::string& name);

class Server {
 public:
  /// Locks the root, recovers what lies in it, and listens. Errors name what to do.
  static Result<std::unique_ptr<Server>> start(Device& device, const ServerOptions& options);
  ~Server();

  /// Serves until stop().
  void run();
  /// From the loop's thread: ends run().
  void stop();
  /// After run(): makes everything that is committed durable.
  Result<void> flush_everything();

  const ServerOptions& options() const noexcept { return options_; }
  const std::string& socket_path() const noexcept { return socket_path_; }
  std::uint64_t run_number() const noexcept { return run_number_; }
  Device& device() noexcept { return device_; }
  EventLoop& loop() noexcept { return *loop_; }
  storage::ReservationStore& store() noexcept { return *store_; }
  PinTable& pins() noexcept { return *pins_; }
  /// Syncs, in order.
  Worker& sync_worker() noexcept { return *sync_worker_; }
  /// Whatever else takes long.
  Worker& errand_worker() noexcept { return *errand_worker_; }

  /// invalid_argument for what cannot be a name; not_found, or permission_denied with the same words for those that may
  /// not know.
  Result<Reservation*> find_reservation(const std::string& name, const Peer& peer);
  std::map<std::string, std::unique_ptr<Reservation>>& reservations() noexcept { return reservations_; }
  /// After the folder is whole on disk.
  Reservation& add_reservation(reservation::ReservationT record);
  void forget_reservation(const std::string& name);
  /// Deletes in the background what lies in quarantine.
  void purge_quarantine();

  ServerInfo info() const;
  std::uint64_t reserved_bytes() const;
  /// What was found and set aside at start.
  const std::vector<std::string>& start_problems() const noexcept { return start_problems_; }
  /// During recovery: is this withdrawn step held by a reader of before the restart?
  bool held_by_absent(const std::string& stream_uuid, std::uint32_t epoch, std::uint64_t step) const;

  /// Writes down that this boot's recovery is whole, but for the streams that could not be checked.
  Result<void> note_boot();

  std::uint64_t next_stream_number() noexcept { return ++stream_numbers_; }
  void remove(Connection& connection);

  // Readers that wait for a stream to come into being
  void add_stream_waiter(ReaderSession& session, const std::string& path);
  void remove_stream_waiter(ReaderSession& session);
  void stream_made(const std::string& path);

  const ReaderPresence& presence() const noexcept { return *presence_; }
  /// A reader that holds steps, but has no connection: until it comes back, or is gone.
  void watch_absent_reader(std::uint64_t session, pid_t pid);
  /// It has come back, or let go.
  void absent_returned(std::uint64_t session) { absent_readers_.erase(session); }

  /// Are there readers of before the start that may hold steps of a stream that could not be read at it?
  bool has_unplaced_readers();

  /// Numbers of the readers that are connected.
  std::set<std::uint64_t> reader_sessions;
  /// Names of reservations that are being created or destroyed right now, and what waits for the end of that.
  std::map<std::string, std::vector<std::function<void()>>> names_in_work;
  void end_work(const std::string& name);
  /// Bytes of creations in work, so that two at once do not overcommit the pool.
  std::uint64_t bytes_in_work = 0;

 private:
  Server(Device& device, ServerOptions options);
  Result<void> prepare_root();
  Result<void> learn_capacity();
  /// Makes a small file of the root hold this text. Takes no space where it does already.
  Result<void> keep_text(const std::string& name, const std::string& text);
  Result<void> recover();
  Result<void> listen();
  void accept_clients();
  void pause_accepting();
  void purge_round();
  void watch_absent_readers();
  void check_absent_readers();
  /// Nobody holds what that reader held, whose process this is.
  bool is_gone(std::uint64_t session, const ReaderProcess& process) const;

  Device& device_;
  ServerOptions options_;
  std::string socket_path_;
  std::uint64_t run_number_ = 0;
  std::int64_t started_ns_ = 0;
  std::uint64_t pool_bytes_ = 0;
  std::uint64_t stream_numbers_ = 0;
  bool after_boot_ = false;
  bool purging_ = false;
  bool purge_again_ = false;
  std::string boot_id_;
  /// Streams that an earlier start in this boot could not check, by reservation's id.
  std::map<std::string, std::set<std::string>> unchecked_;
  std::vector<std::string> unread_;  ///< ids of reservations that could not be read at this start
  Descriptor lock_;
  Descriptor listener_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<storage::ReservationStore> store_;
  std::optional<ReaderPresence> presence_;
  std::unique_ptr<PinTable> pins_;
  std::vector<std::string> start_problems_;
  std::vector<PinTable::Absent> absent_;                   ///< readers of before the restart; during recovery only
  std::map<std::uint64_t, ReaderProcess> absent_readers_;  ///< by session
  bool absent_check_set_ = false;
  struct UnplacedReader {
    ReaderProcess process;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> keys;  ///< epochs and steps
  };
  std::map<std::uint64_t, UnplacedReader> unplaced_readers_;  ///< of streams that are not known, by session
  std::multimap<std::string, ReaderSession*> stream_waiters_;
  std::map<std::string, std::unique_ptr<Reservation>> reservations_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  // Last, so that their threads end before what their jobs touch.
  std::unique_ptr<Worker> sync_worker_;
  std::unique_ptr<Worker> errand_worker_;
};

}  // namespace forebay::server
