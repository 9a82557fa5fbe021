// SPDX-License-Identifier: Apache-2.0
// All readers of a server: their numbers, the steps that they hold over a restart, those without a connection, and
// those that wait for a stream to come into being.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <forebay/admin.h>

#include "loop/event_loop.h"
#include "readers/pin_table.h"
#include "readers/serving_turns.h"
#include "space/reader_presence.h"

namespace forebay::server {

class Follower;
class Followers;
class ReaderGroups;
class ReaderSession;

/// A member of a reservation, and the number of a file that a reader keeps open there (wire::MemberPresence).
using MemberPresence = std::pair<std::uint16_t, std::uint64_t>;

/// Of those that wait for one stream, nobody reads more.
inline constexpr std::size_t waits_told_max = 64;
/// Streams that readers wait for, of one answer: whoever may read can wait for as many as they have connections.
inline constexpr std::size_t awaited_told_max = 256;

class ReaderRegistry {
 public:
  /// Opens ROOT/readers and ROOT/pins. Readers of before the start are absent until they come back or are gone.
  /// `restart_grace_ms`: how long ranks of reader groups that cannot be looked at have to come back. `cut_grace_ms`:
  /// how long readers on other nodes have, whose connection was cut.
  static Result<std::unique_ptr<ReaderRegistry>> open(EventLoop& loop, const std::string& root, bool after_boot,
                                                      std::int64_t restart_grace_ms, std::int64_t cut_grace_ms);
  ~ReaderRegistry();
  ReaderRegistry(const ReaderRegistry&) = delete;
  ReaderRegistry& operator=(const ReaderRegistry&) = delete;

  PinTable& pins() noexcept { return *pins_; }
  const ReaderPresence& presence() const noexcept { return presence_; }
  ReaderGroups& groups() noexcept { return *groups_; }
  ServingTurns& serving() noexcept { return serving_; }

  // The streams' followers
  void add(Followers& followers) { followers_.push_back(&followers); }
  void remove(Followers& followers) { std::erase(followers_, &followers); }

  /// This number if no living reader has it, else another one.
  std::uint64_t take_number(std::uint64_t wanted);
  void give_back_number(std::uint64_t number) { numbers_.erase(number); }

  // During recovery
  /// Is this withdrawn step held by a reader of before the restart?
  bool held_by_absent(const std::string& stream_uuid, std::uint32_t epoch, std::uint64_t step) const;
  /// Once the streams are there: they hold what absent readers do. `all_read`: no stream is missing that could not be
  /// read.
  void place_absent(bool all_read);

  /// A reader that holds steps, but has no connection: until it comes back, or is gone.
  void watch_absent(std::uint64_t session, pid_t pid);
  /// One on another node, of which nobody can know more than that it may come back for a while.
  void watch_cut(std::uint64_t session);
  /// The same of one that maps what other members have: they know when it is gone. `presences`: none, it is of before
  /// the start.
  void watch_mapping(std::uint64_t session, pid_t pid, const std::string& stream_uuid,
                     std::set<MemberPresence> presences);
  /// It has come back, or let go.
  void absent_returned(std::uint64_t session) { absent_.erase(session); }
  /// Forgets readers of streams that could not be read which are gone. `earlier_are_gone`: all on other nodes are.
  void forget_gone_unplaced(bool earlier_are_gone);
  /// Are there readers of before the start that may hold steps of a stream that could not be read at it?
  bool has_unplaced() const noexcept { return !unplaced_.empty(); }

  // Readers on other nodes
  void add_remote(ReaderSession& session);
  void remove_remote(const ReaderSession& session);
  /// Its client may have noticed a cut before this server, and come by another connection: then the one that it had
  /// ends now.
  void end_connection_before(std::uint64_t session, const ReaderSession& successor);

  // Ranks of groups of before the start
  std::int64_t restart_grace_ms() const noexcept { return restart_grace_ms_; }
  /// Those of a group that had a file, and whether they live.
  std::vector<std::pair<std::uint32_t, bool>> ranks_of_before(std::uint64_t group_number) const;

  // Readers that wait for a stream to come into being, by its path
  void add_stream_waiter(Follower& reader, const std::string& path);
  void remove_stream_waiter(Follower& reader, const std::string& path);
  /// Those of a reservation, by name; of too many the first ones.
  std::vector<AwaitedStream> awaited_streams(const std::string& reservation) const;
  /// They are told soon: the stream can be found only once its maker returns.
  void stream_made(const std::string& path);
  void reservation_destroyed(const std::string& reservation);
  /// The stream's writer was refused and does not come: those that do not wait for ever are told.
  void writer_refused(const std::string& path, const std::string& run, const std::string& why);

 private:
  ReaderRegistry(EventLoop& loop, ReaderPresence presence);
  void check_absent();
  /// Nobody holds what that reader held, whose process this is.
  bool is_gone(std::uint64_t session, const ReaderProcess& process) const;

  struct AbsentReader {
    ReaderProcess process;
    std::optional<std::int64_t> until_ns = {};  ///< monotonic; of one on another node
    std::string maps_of_stream = {};            ///< uuid; of one that maps what other members have
    std::set<MemberPresence> presences = {};
    std::int64_t since_ns = 0;  ///< monotonic
  };
  bool is_gone(std::uint64_t session, const AbsentReader& reader) const;
  bool maps_nothing(const AbsentReader& reader) const;
  struct UnplacedReader {
    std::optional<ReaderProcess> process;                       ///< none: it is on another node
    std::vector<std::pair<std::uint32_t, std::uint64_t>> keys;  ///< epochs and steps
  };
  void watch(std::uint64_t session, AbsentReader reader);

  EventLoop& loop_;
  ServingTurns serving_;
  ReaderPresence presence_;
  std::unique_ptr<PinTable> pins_;
  std::int64_t restart_grace_ms_ = 0;
  std::int64_t cut_grace_ms_ = 0;
  std::map<ReaderPresence::GroupRank, std::uint64_t> ranks_before_;  ///< their sessions
  std::vector<Followers*> followers_;
  std::set<std::uint64_t> numbers_;       ///< of the readers that are connected
  std::vector<PinTable::Absent> before_;  ///< readers of before the restart; during recovery only
  std::map<std::uint64_t, ReaderSession*> remote_sessions_;
  std::map<std::uint64_t, AbsentReader> absent_;  ///< by session
  bool absent_check_set_ = false;
  std::map<std::uint64_t, UnplacedReader> unplaced_;  ///< of streams that are not known, by session
  std::map<std::string, std::map<std::uint64_t, Follower*>> stream_waiters_;  ///< by path and number of the reader
  std::unique_ptr<ReaderGroups> groups_;  ///< ends first: groups give their numbers back
};

}  // namespace forebay::server
