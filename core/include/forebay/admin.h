// SPDX-License-Identifier: Apache-2.0
// What the manager and the command line ask of a staging server: reservations, streams, cursors, staging marks, audits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/address.h>
#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/types.h>

namespace forebay {

enum class Lifetime : std::uint8_t { job = 1, persistent = 2 };

/// What somebody may do in a reservation; each includes those before it. On the wire and on disk: never renumber.
enum class Rights : std::uint8_t {
  none = 1,
  read = 2,   ///< list, read and follow streams; read files/
  write = 3,  ///< also write, change and remove streams and files
  own = 4,    ///< also share and destroy the reservation; the owner's, root's and the server's user's
};

/// "none", "read", "write", "own".
std::string_view to_string(Rights rights) noexcept;

/// What a user or a group may do in a reservation of somebody else's.
struct Share {
  enum class Kind : std::uint8_t { user = 1, group = 2 };
  Kind kind = Kind::user;
  std::uint32_t id = 0;          ///< uid or gid
  Rights rights = Rights::none;  ///< not own

  bool operator==(const Share&) const = default;

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("kind", records.kind...);
    visit("id", records.id...);
    visit("rights", records.rights...);
  }
};

/// What one server of a pool gives to a reservation.
struct ReservationMember {
  std::string server;                ///< uuid of its root
  std::uint64_t capacity_bytes = 0;  ///< for streams; of the home with what is kept for journals
  std::uint32_t segments = 0;        ///< of it; as servers tell

  bool operator==(const ReservationMember&) const = default;
  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("server", records.server...);
    visit("capacity_bytes", records.capacity_bytes...);
    visit("segments", records.segments...);
  }
};

struct ReservationSpec {
  std::string name;
  std::uint64_t capacity_bytes = 0;  ///< for streams, rounded up to the pool's granularity; 0: only with files_bytes
  std::uint64_t files_bytes = 0;     ///< for files/, beside that; rounded up as well
  Lifetime lifetime = Lifetime::job;
  std::optional<std::uint32_t> owner_uid;  ///< unset: the caller; only the server's own user or root may set another
  std::optional<std::uint32_t> owner_gid;
  std::string pool;     ///< kept for the manager, which hands out space by pools; empty: the default pool
  std::string account;  ///< kept for the manager, which counts quotas by accounts; empty: none
  std::string id;       ///< uuid; empty: the server draws one
  std::vector<ReservationMember> members;  ///< the home first, all of them asked alike; empty: the server that is asked

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("name", records.name...);
    visit("capacity_bytes", records.capacity_bytes...);
    visit("files_bytes", records.files_bytes...);
    visit("lifetime", records.lifetime...);
    visit("owner_uid", records.owner_uid...);
    visit("owner_gid", records.owner_gid...);
    visit("pool", records.pool...);
    visit("account", records.account...);
    visit("id", records.id...);
    visit("members", records.members...);
  }
};

struct ReservationInfo {
  std::string name;
  std::string id;                                 ///< uuid
  std::uint64_t capacity_bytes = 0;               ///< granted for streams
  std::uint64_t used_bytes = 0;                   ///< space that steps and journals hold
  std::uint64_t files_bytes = 0;                  ///< granted for files/
  std::optional<std::uint64_t> files_used_bytes;  ///< what lies in files/; unset: not counted
  std::uint64_t segment_bytes = 0;
  Lifetime lifetime = Lifetime::job;
  std::uint32_t owner_uid = 0;
  std::uint32_t owner_gid = 0;
  std::int64_t created_ns = 0;
  std::uint32_t streams = 0;
  std::string files_path;               ///< absolute path of files/
  std::vector<Share> shares;            ///< beside the owner, and the owner's group, which may write if it is not here
  std::uint64_t access_generation = 0;  ///< raised whenever somebody's rights become less
  std::uint32_t files_group = 0;        ///< a group that nobody is in: marks what was made in files/ in its access list
  std::vector<std::string> files_left;  ///< what of files/ the shares do not reach as yet, a line each; none: all is
  std::string pool;                     ///< of the manager that made it; empty: the default pool
  std::string account;                  ///< that the manager counts it for; empty: none
  std::vector<ReservationMember> members;  ///< the home first
  bool home = true;                        ///< the server that was asked is the home; else it has only a share
  std::string trouble;                     ///< why it serves nothing; empty: it does

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("name", records.name...);
    visit("id", records.id...);
    visit("capacity_bytes", records.capacity_bytes...);
    visit("used_bytes", records.used_bytes...);
    visit("files_bytes", records.files_bytes...);
    visit("files_used_bytes", records.files_used_bytes...);
    visit("segment_bytes", records.segment_bytes...);
    visit("lifetime", records.lifetime...);
    visit("owner_uid", records.owner_uid...);
    visit("owner_gid", records.owner_gid...);
    visit("created_ns", records.created_ns...);
    visit("streams", records.streams...);
    visit("files_path", records.files_path...);
    visit("shares", records.shares...);
    visit("access_generation", records.access_generation...);
    visit("files_group", records.files_group...);
    visit("files_left", records.files_left...);
    visit("pool", records.pool...);
    visit("account", records.account...);
    visit("members", records.members...);
    visit("home", records.home...);
    visit("trouble", records.trouble...);
  }
};

/// A stream that does not exist, which readers wait for.
struct AwaitedStream {
  std::string name;
  std::vector<StreamWait> waits;  ///< 64 at most

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("name", records.name...);
    visit("waits", records.waits...);
  }
};

struct ServerInfo {
  std::string version;
  std::string root;
  std::uint32_t pid = 0;
  std::int64_t started_ns = 0;
  std::uint64_t pool_bytes = 0;  ///< capacity handed out in reservations at most
  std::uint64_t reserved_bytes = 0;
  std::uint64_t granularity_bytes = 0;
  std::uint32_t clients = 0;
  std::uint32_t reservations = 0;
  std::string uuid;                       ///< of the root
  std::uint64_t storage_incarnation = 0;  ///< another one after a boot, when unsynced bytes may have been lost

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("version", records.version...);
    visit("root", records.root...);
    visit("pid", records.pid...);
    visit("started_ns", records.started_ns...);
    visit("pool_bytes", records.pool_bytes...);
    visit("reserved_bytes", records.reserved_bytes...);
    visit("granularity_bytes", records.granularity_bytes...);
    visit("clients", records.clients...);
    visit("reservations", records.reservations...);
    visit("uuid", records.uuid...);
    visit("storage_incarnation", records.storage_incarnation...);
  }
};

/// Something that `forebay doctor` shows.
struct Finding {
  enum class Severity : std::uint8_t { note = 1, problem = 2 };
  Severity severity = Severity::note;
  std::string where;
  std::string what;  ///< what is wrong and what to do

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("severity", records.severity...);
    visit("where", records.where...);
    visit("what", records.what...);
  }
};

/// How a client reaches its server, and how fast.
struct PingInfo {
  std::string transport;                          ///< of bytes of steps: "local", "tcp" or "fabric"
  std::string provider;                           ///< libfabric's; empty: not by libfabric
  std::uint64_t latency_ns = 0;                   ///< of a request and its answer: the median of several
  std::uint64_t latency_least_ns = 0;             ///< of the fastest of them
  std::optional<std::uint64_t> bytes_per_second;  ///< from the server by the data path; none on the server's own node

  /// See StepSummary::each_field.
  template <class Visit, class... Records>
  static void each_field(Visit&& visit, Records&... records) {
    visit("transport", records.transport...);
    visit("provider", records.provider...);
    visit("latency_ns", records.latency_ns...);
    visit("latency_least_ns", records.latency_least_ns...);
    visit("bytes_per_second", records.bytes_per_second...);
  }
};

/// Where a reservation of a pool lies.
struct ReservationHome {
  std::string name;
  std::string id;      ///< uuid
  std::string server;  ///< "HOST:PORT"
};

/// A server of a pool.
struct ServerOfPool {
  std::string uuid;  ///< of its root
  std::string name;
  std::string server;  ///< "HOST:PORT"
};

struct PoolDirectory {
  std::string manager;  ///< "HOST:PORT" of the server on the manager's node
  std::vector<ReservationHome> homes;
  std::vector<ServerOfPool> servers;
};

/// What the manager answered a request with.
struct ManagerAnswer {
  std::uint16_t status = 0;  ///< of HTTP
  std::string body;
};

/// The server that has the reservation: that of `place`, or another one of its pool. Each connection to another one
/// begins with an introduction by that of `place`. A server that cannot be reached now is taken for the home.
Result<ServerPlace> home_of(const ServerPlace& place, const std::string& reservation,
                            const InterruptHook& interrupt = {});

/// A server of the pool that the server of `place` belongs to. `server`: "HOST:PORT", which only administrators may
/// name; empty: the one on the manager's node. not_found if there is no pool.
Result<ServerPlace> pool_server(const ServerPlace& place, const std::string& server,
                                const InterruptHook& interrupt = {});

/// A token with which the caller is known to all servers of the pool that the server of `place` belongs to: the text of
/// a file of mode 0600. not_found if there is no pool, invalid_argument for more than a day,
/// permission_denied for root.
Result<std::string> user_token(const ServerPlace& place, std::uint64_t lifetime_s, const InterruptHook& interrupt = {});

/// A new key for a pool of servers: the text of its file, which has mode 0600.
std::string new_pool_key();

class Admin {
 public:
  /// Connects to the instance's server (forebay/address.h). `socket_path` empty: server_socket(). A server that is
  /// away, now or in a later call, is waited for as long as `reconnect_timeout_ms`; 0: one attempt. It is always one of
  /// this instance, whatever the environment says later.
  static Result<std::unique_ptr<Admin>> connect(std::string_view socket_path = {}, InterruptHook interrupt = {},
                                                std::int64_t reconnect_timeout_ms = 0);
  static Result<std::unique_ptr<Admin>> connect_to(ServerPlace place, InterruptHook interrupt = {},
                                                   std::int64_t reconnect_timeout_ms = 0);
  ~Admin();
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;

  Result<ServerInfo> server();
  /// Measures the way to the server with `requests` small requests (at least 1) and, on another node, `bytes` by the
  /// data path, which are of no step. Any token will do.
  Result<PingInfo> ping(std::uint32_t requests, std::uint64_t bytes);

  /// Idempotent: creating the same reservation again (same owner, capacity, kinds) returns it; a different one is
  /// already_exists.
  Result<ReservationInfo> create_reservation(const ReservationSpec& spec);
  /// Changes lifetime and capacity for files of a reservation; unset: as it is. Only the server's own user and root
  /// may. Idempotent. Errors: not_found, no_space (the pool has too little left), refused (more lies in files/ than
  /// that).
  Result<ReservationInfo> change_reservation(std::string_view name, std::optional<Lifetime> lifetime,
                                             std::optional<std::uint64_t> files_bytes);
  /// Idempotent: destroying what does not exist succeeds for the server's user; others are told permission_denied, as
  /// of a reservation that they may not use. refused with live writers or unstaged precious steps unless
  /// `force`.
  Result<void> destroy_reservation(std::string_view name, bool force);
  /// Replaces what this user or group may do; the owner and root may. Idempotent. Taking rights away ends what uses
  /// them. A user's share counts alone; of the groups', the most. Errors: permission_denied, invalid_argument,
  /// unsupported (files/ cannot have it on its file system).
  Result<ReservationInfo> share_reservation(std::string_view name, const Share& share);
  /// Lets what belongs to the reservation's owner, at `path` below files/ (empty: everywhere), count as made in the
  /// reservation, so that shares reach it; done with the owner's rights. The owner and root may. Idempotent. Errors:
  /// not_found, permission_denied, invalid_argument (the path leads elsewhere), unsupported.
  Result<ReservationInfo> adopt_files(std::string_view name, std::string_view path);
  /// Those that the caller may see.
  /// `count_files`: with what lies in files/, whose trees are walked through for it, which may take long.
  /// `names`: of these alone; unset: all. `turn_of`: a user for whom an administrator asks: users take turns in
  /// counting.
  Result<std::vector<ReservationInfo>> reservations(bool count_files = true,
                                                    const std::optional<std::vector<std::string>>& names = {},
                                                    std::optional<std::uint32_t> turn_of = {});
  Result<ReservationInfo> reservation(std::string_view name, bool count_files = true);

  Result<std::vector<StreamInfo>> streams(std::string_view reservation);
  /// Streams of the reservation that readers wait for and nobody has made yet, by name; the first 256.
  Result<std::vector<AwaitedStream>> awaited_streams(std::string_view reservation);
  Result<StreamInfo> stream(const Address& address);
  Result<std::vector<StepSummary>> steps(const Address& address);

  /// Removes a stream and its steps. refused as in destroy_reservation.
  Result<void> remove_stream(const Address& address, bool force);
  Result<void> remove_consumer(const Address& address, std::string_view consumer);
  Result<void> set_retention(const Address& address, const Retention& retention);

  /// Records that these steps of `epoch` have a receipt; they lose their preciousness. Steps that are gone are ignored.
  Result<void> mark_staged(const Address& address, std::uint32_t epoch, const std::vector<std::uint64_t>& steps,
                           std::string_view receipt);
  /// Marks steps as precious (or not) by number. not_found for one that is not kept; to be precious no more it need
  /// only have been.
  Result<void> set_precious(const Address& address, const std::vector<std::uint64_t>& steps, bool precious);

  /// Drops steps by number, whatever retention says. refused for one that is precious and not staged out, that a reader
  /// holds or that a named consumer has not passed: then none is dropped. Steps that are gone are ignored; not_found
  /// for one that was never there.
  Result<void> drop_steps(const Address& address, const std::vector<std::uint64_t>& steps);

  /// A token with which the caller may use the reservation from another node: text for a file of mode 0600. `uid`: of
  /// that user instead. Only the server's own user and root may ask for another's, and answer for that user's rights.
  Result<std::string> create_token(std::string_view reservation, bool reads, bool writes, std::uint64_t lifetime_s,
                                   std::optional<std::uint32_t> uid = {});
  /// Makes a token void before its time: connections with it end. Whoever has the token may. Idempotent.
  /// permission_denied if this server has not made it.
  Result<void> revoke_token(std::string_view token);

  /// Tells the server where the reservations of its pool lie. The manager's; a server of no pool refuses.
  Result<void> tell_pool_directory(const PoolDirectory& directory);
  /// A request to the manager on the server's node, as the server knows the caller. `body` is JSON, or empty.
  Result<ManagerAnswer> call_manager(std::string_view method, std::string_view target, std::string_view body);

  /// Cross-checks journals, space maps, descriptors and what lies on disk; with `read_data` also every block's
  /// checksum.
  Result<std::vector<Finding>> audit(bool read_data);

 private:
  struct Impl;
  explicit Admin(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay
