// SPDX-License-Identifier: Apache-2.0
// The staging server of one node: its root, its socket, its reservations and its clients.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <forebay/admin.h>

#include "administration/administered_server.h"
#include "base/device.h"
#include "base/limited_log.h"
#include "daemon/invariant_checks.h"
#include "daemon/listening_socket.h"
#include "daemon/manager_calls.h"
#include "daemon/remote_access.h"
#include "daemon/root_files.h"
#include "daemon/server_pool.h"
#include "loop/connection.h"
#include "loop/event_loop.h"
#include "loop/strangers.h"
#include "loop/user_shares.h"
#include "loop/worker.h"
#include "members/member_link.h"
#include "members/member_session.h"
#include "readers/reader_registry.h"
#include "reservations/reservation_table.h"
#include "storage/reservation_store.h"
#include "streams/stream.h"

namespace forebay::server {

/// What clients may take together. Tests make them smaller.
struct DoorLimits {
  std::size_t connections = 0;                          ///< of this node; 0: as many as there are descriptors for
  std::size_t strangers = 1024;                         ///< of this node, that have not said hello
  std::int64_t hello_ms = 10'000;                       ///< until they must have said it
  std::int64_t turn_ms = 2;                             ///< of a user's requests, before others are dealt with
  std::uint64_t unread_bytes = std::uint64_t{1} << 30;  ///< of unfinished messages and unread answers
};

struct ServerOptions {
  std::string root;
  std::string socket_path;       ///< empty: a short path made from the root
  std::string listen;            ///< "HOST:PORT" for clients on other nodes; empty: there are none
  std::string pool_key;          ///< file with the key of a pool of servers; empty: it belongs to none
  std::string fabric;            ///< libfabric's provider for their data; empty: TCP alone
  std::string fabric_peers;      ///< "trusted": all who reach the ports that libfabric opens; else it opens none
  bool encrypts_control = true;  ///< messages of such clients; the bytes of large steps never are
  RemoteLimits remote_limits;
  DoorLimits door_limits;
  std::string files_image;   ///< "xfs": files/ is an image of its own, as large as granted; empty: a folder
  std::string files_groups;  ///< "FIRST-LAST": group ids that mark what was made in files/; empty: storage::GroupRange
  std::optional<std::uint64_t> capacity_bytes;  ///< of the pool; unset: 80 % of what is free at the first start
  std::int64_t flush_interval_ms =
      500;                              ///< how long a committed step may wait to be made durable; < 0: only on request
  std::int64_t segment_look_ms = 1000;  ///< how often to look at segments that writers have open
  std::int64_t cut_grace_ms = 15'000;   ///< how long readers on other nodes have whose connection was cut
  std::int64_t restart_grace_ms = 60'000;   ///< how long writer groups have to come back after a restart of the server
  std::int64_t member_silence_ms = 60'000;  ///< how long a member lets others in without a word of the home; for tests
  std::uint64_t checked_per_turn = 32;      ///< of InvariantChecks, in builds that have them; 0: nothing
  /// Everything, each turn.
  static constexpr std::uint64_t check_all = std::numeric_limits<std::uint64_t>::max();
};

class Server final : public ConnectionHost,
                     public AdministeredServer,
                     public ReservationHost,
                     public StreamsToRead,
                     public StreamsToWrite,
                     public MemberHost {
 public:
  /// How many creations and walks over files run side by side.
  static constexpr unsigned side_threads = 4;
  /// As many streams are synced side by side: a disk takes little longer for all of them than for one.
  static constexpr unsigned sync_threads = 8;

  /// Locks the root, recovers what lies in it, and listens. Errors name what to do.
  static Result<std::unique_ptr<Server>> start(Device& device, const ServerOptions& options);
  ~Server() override;

  /// Serves until stop().
  void run();
  /// From the loop's thread: ends run().
  void stop();
  /// After run(): makes everything that is committed durable.
  Result<void> flush_everything();

  const std::string& socket_path() const noexcept { return socket_path_; }
  EventLoop& loop() noexcept { return *loop_; }
  storage::ReservationStore& store() noexcept { return *store_; }
  Worker& sync_worker() noexcept { return *sync_worker_; }
  Worker& errand_worker() override { return *errand_worker_; }
  const std::optional<storage::GroupRange>& files_groups() const override { return files_groups_; }
  Worker& side_worker() override { return *side_worker_; }
  ReservationTable& reservations() override { return reservations_.value(); }
  ReaderRegistry& readers() noexcept { return *readers_; }

  // AdministeredServer
  ServerInfo info() const override;
  const std::vector<std::string>& start_problems() const override { return start_problems_; }
  std::vector<std::string> unprotected() const override;
  Result<std::string> create_token(const Peer& peer, const wire::TokenCreateT& asked) override {
    return remote_->create_token(peer, asked);
  }
  Result<void> revoke_token(const std::string& token) override;
  Result<wire::HomeAnswerT> home(const Peer& peer, const wire::HomeQueryT& query) override {
    const auto found = reservations_->all().find(query.reservation);
    return pool_->home(peer, query, found != reservations_->all().end() && found->second->is_home());
  }
  Result<void> learn(const wire::PoolDirectoryT& directory) override { return pool_->learn(directory); }
  Result<void> call_manager(const Peer& peer, const wire::ManagerCallT& call, std::weak_ptr<const bool> wanted,
                            ManagerCalls::Answered answered) override {
    return manager_calls_->begin(peer, call, std::move(wanted), std::move(answered));
  }
  void rights_changed(const std::string& reservation) override;
  void end_clients(const std::string& reservation, const std::string& why) override;

  // ReservationHost
  const StreamServices& stream_services() override { return services_.value(); }
  std::uint64_t next_stream_number() override { return ++stream_numbers_; }
  Result<void> check_place_for_stream(uid_t owner) const override;
  /// Writes down that this boot's recovery is whole, but for the streams that could not be checked.
  Result<void> note_boot() override;
  bool earlier_readers_are_gone() const override { return reservations_->earlier_readers_are_gone(); }
  void purge_quarantine() override { reservations_->purge_quarantine(); }
  void has_streams(Reservation& reservation) override { reservations_->has_streams(reservation); }

  // ConnectionHost
  std::unique_ptr<Session> make_session(Connection& connection, protocol::MessageType first) override;
  wire::WelcomeT welcome() const override;
  wire::WelcomeT remote_welcome() const override;
  std::int64_t hello_ms() const override { return options_.door_limits.hello_ms; }
  Result<void> admit(Connection& connection) override;
  void has_said_hello(Connection& connection) override;
  void no_stranger(Connection& connection) override;
  ByteShares& unread_bytes() override { return unread_bytes_; }
  UserTurns& turns() override { return *turns_; }
  void remove(Connection& connection) override;
  RemoteDoor* remote_door() override { return &*remote_; }

  Result<Followers*> find_to_read(const Peer& peer, const std::string& reservation, const std::string& stream) override;
  Result<WriterGroup*> find_to_write(const Peer& peer, const std::string& reservation, const std::string& stream,
                                     bool make) override;
  AccessRights rights_of(const Peer& peer, const std::string& reservation) override;

  // MemberHost
  MemberShare* find_share(const std::string& reservation_id) override;
  const fabric::TokenKey* pool_key() const override { return pool_->key(); }
  std::uint64_t storage_incarnation() const override { return identity_.storage_incarnation; }
  std::uint64_t server_run() const override { return run_number_; }

 private:
  Server(Device& device, ServerOptions options);
  Result<void> prepare_root();
  /// The root's uuid, drawn at its first start, and its storage incarnation, drawn at the first start after a boot.
  Result<void> learn_identity();
  Result<void> learn_capacity();
  /// Has the store hold files/ in images, if the options say so.
  Result<void> hold_files();
  /// Of which reservations get one that marks what is made in them.
  Result<void> choose_files_groups();
  /// Makes a small file of the root hold this text. Takes no space where it does already.
  Result<void> keep_text(const std::string& name, const std::string& text, FileFor whom = FileFor::owner);
  Result<void> recover();
  Result<void> listen();
  /// False if the root was removed, or another one has its path.
  bool root_is_ours() const;
  /// Every second: ends the server with its root, makes its socket again if somebody removed it.
  void look_after_root();
  void guard_segments();
  void accept_clients();
  void keep(std::unique_ptr<Connection> connection, Strangers& strangers, const std::string& whose);
  void add_stranger(Connection& connection, Strangers& strangers, const std::string& whose);
  void accept_remote_clients();
  void pause_accepting();

  Device& device_;
  ServerOptions options_;
  std::string socket_path_;
  std::uint64_t run_number_ = 0;
  std::int64_t started_ns_ = 0;
  RootIdentity identity_;
  std::optional<storage::GroupRange> files_groups_;  ///< none: this user namespace has too few groups
  std::uint64_t pool_bytes_ = 0;
  std::uint64_t stream_numbers_ = 0;
  std::uint64_t connection_numbers_ = 0;
  bool after_boot_ = false;
  std::string boot_id_;
  /// Streams that an earlier start in this boot could not check, by reservation's id.
  std::map<std::string, std::set<std::string>> unchecked_;
  std::vector<std::string> unread_;  ///< ids of reservations that could not be read at this start
  Descriptor lock_;
  ListeningSocket listener_;
  bool socket_is_missed_ = false;  ///< it was told that the socket cannot be made again
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<storage::ReservationStore> store_;
  std::unique_ptr<ReaderRegistry> readers_;
  std::vector<std::string> start_problems_;
  MappingUsers mapping_users_;
  std::optional<StreamServices> services_;
  std::optional<ServerPool> pool_;
  std::optional<MemberLinks> members_;  ///< to other servers of the pool
  std::optional<ReservationTable> reservations_;
  std::optional<ManagerCalls> manager_calls_;
  std::optional<RemoteAccess> remote_;
  PlaceShares places_;         ///< connections of this node
  PlaceShares remote_places_;  ///< of other nodes
  ByteShares unread_bytes_;
  std::optional<UserTurns> turns_;
  std::optional<InvariantChecks> checks_;
  log::Limited accept_failures_;
  Strangers strangers_;
  Strangers remote_strangers_;  ///< that have said nothing yet: it costs nothing to be one of them
  Strangers challenged_;        ///< the other clients on other nodes that have not proved who they are
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;  ///< in the order in which they came
  // Last, so that their threads end before what their jobs touch.
  std::unique_ptr<Worker> sync_worker_;
  std::unique_ptr<Worker> errand_worker_;
  std::unique_ptr<Worker> counter_worker_;
  std::unique_ptr<Worker> side_worker_;
};

}  // namespace forebay::server
