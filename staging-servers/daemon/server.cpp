// SPDX-License-Identifier: Apache-2.0
#include "daemon/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include <forebay/address.h>

#include "administration/admin_session.h"
#include "base/clock.h"
#include "base/descriptor_reserve.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/name_rule.h"
#include "base/return_error.h"
#include "base/uuid.h"
#include "daemon/version.h"
#include "readers/reader_session.h"
#include "reservations/shares.h"
#include "writers/writer_session.h"

namespace forebay::server {
namespace {

constexpr std::int64_t accept_pause_ms = 200;
constexpr int accepted_at_once_max = 64;

std::size_t descriptors_to_share() {
  return descriptors_max() - descriptors_in_reserve();
}

/// Each keeps its journal open, as long as there is a stream: also after a restart, and then before anybody comes in.
std::size_t places_for_streams() {
  return descriptors_to_share() / 4;
}

/// Of the descriptors that are not in reserve, a quarter is for journals and an eighth for those who have not said
/// hello. Of the rest each client takes two at most: its connection, and its process.
std::size_t places_for_clients(const DoorLimits& limits) {
  if (limits.connections > 0) return limits.connections;
  const std::size_t all = descriptors_to_share();
  return (all - places_for_streams() - std::min(limits.strangers, all / 8)) / 2;
}

std::size_t places_for_strangers(const DoorLimits& limits) {
  return std::min(limits.strangers, descriptors_to_share() / 8);
}

/// Of each of the two kinds.
std::size_t places_for_remote_strangers(const RemoteLimits& limits) {
  return std::min(limits.strangers, descriptors_to_share() / 16);
}

/// Descriptors that wait to be sent count as well: they take no more than a half of those for clients.
std::uint64_t bytes_for_clients(const DoorLimits& limits) {
  return std::min(limits.unread_bytes, descriptors_to_share() / 2 * Connection::descriptor_bytes);
}

/// Why a server does not start, and what its operator can do about what the system said.
tl::unexpected<Error> refusal(Error error) {
  if (error.code == ErrorCode::no_space) error.what += "; free some space, then start the server again";
  if (error.code == ErrorCode::io_error) error.what += "; repair that, then start the server again";
  return fail(std::move(error));
}

}  // namespace

Server::Server(Device& device, ServerOptions options)
    : device_(device),
      options_(std::move(options)),
      run_number_(random_number()),
      started_ns_(wall_clock_ns()),
      places_(places_for_clients(options_.door_limits)),
      remote_places_(options_.remote_limits.clients),
      unread_bytes_(bytes_for_clients(options_.door_limits)),
      strangers_(places_for_strangers(options_.door_limits)),
      remote_strangers_(places_for_remote_strangers(options_.remote_limits)),
      challenged_(places_for_remote_strangers(options_.remote_limits)) {}

Server::~Server() {
  // Jobs end first; what they posted runs while everything is still there, and may post once more.
  if (sync_worker_) sync_worker_->end();
  if (errand_worker_) errand_worker_->end();
  if (counter_worker_) counter_worker_->end();
  if (side_worker_) side_worker_->end();
  if (loop_) {
    loop_->run_posted();
    loop_->run_posted();
  }
  connections_.clear();
  remote_.reset();
  manager_calls_.reset();
  if (reservations_) reservations_->all().clear();
  members_.reset();
}

Result<std::unique_ptr<Server>> Server::start(Device& device, const ServerOptions& options) {
  std::unique_ptr<Server> server(new Server(device, options));
  if (auto prepared = server->prepare_root(); !prepared) return refusal(std::move(prepared.error()));
  auto loop = EventLoop::create();
  if (!loop) return refusal(std::move(loop.error()));
  server->loop_ = std::move(*loop);
  server->turns_.emplace(*server->loop_, options.door_limits.turn_ms * ns_per_ms);
  server->sync_worker_ = std::make_unique<Worker>(sync_threads);
  server->errand_worker_ = std::make_unique<Worker>();
  server->counter_worker_ = std::make_unique<Worker>();
  server->side_worker_ = std::make_unique<Worker>(side_threads);
  auto store = storage::ReservationStore::open(device, server->options_.root);
  if (!store) return refusal(std::move(store.error()));
  server->store_ = std::move(*store);
  if (auto held = server->hold_files(); !held) return refusal(std::move(held.error()));
  if (auto chosen = server->choose_files_groups(); !chosen) return refusal(std::move(chosen.error()));
  if (auto learned = server->learn_identity(); !learned) return refusal(std::move(learned.error()));
  if (auto learned = server->learn_capacity(); !learned) return refusal(std::move(learned.error()));
  if (auto recovered = server->recover(); !recovered) return refusal(std::move(recovered.error()));
  if (auto listening = server->listen(); !listening) return refusal(std::move(listening.error()));
  if constexpr (checks_invariants)
    server->checks_.emplace(*server->reservations_, *server->readers_, options.checked_per_turn);
  server->purge_quarantine();
  server->reservations().finish_sharing();
  server->guard_segments();
  return server;
}

void Server::guard_segments() {
  reservations_->guard_segments();
  loop_->at(monotonic_ns() + options_.segment_look_ms * ns_per_ms, [this] { guard_segments(); });
}

void Server::accept_clients() {
  // What those have sent that are here comes before more of them.
  for (int accepted = 0; accepted < accepted_at_once_max; ++accepted) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED) {
        accept_failures_.error("cannot accept a client: {}", std::generic_category().message(errno));
        pause_accepting();
      }
      return;
    }
    if (is_in_reserve(socket.get())) {
      accept_failures_.error("a client is turned away: {} files are open, as many as may be for clients",
                             descriptors_max() - descriptors_in_reserve());
      continue;
    }
    auto connection = Connection::accept(*loop_, *this, std::move(socket));
    if (!connection) {
      accept_failures_.error("{}", connection.error().message());
      continue;
    }
    const std::string whose = std::to_string((*connection)->peer().uid);
    keep(std::move(*connection), strangers_, whose);
  }
}

void Server::accept_remote_clients() {
  for (int accepted = 0; accepted < accepted_at_once_max; ++accepted) {
    Descriptor socket = remote_->accept();
    if (!socket.valid()) return;
    if (is_in_reserve(socket.get())) {
      accept_failures_.error(
          "a client of another node is turned away: {} files are open, as many as may be for clients",
          descriptors_max() - descriptors_in_reserve());
      continue;
    }
    auto connection = Connection::accept_remote(*loop_, *this, std::move(socket));
    if (!connection) {
      accept_failures_.error("{}", connection.error().message());
      continue;
    }
    const std::string whose = (*connection)->peer().remote->network;
    keep(std::move(*connection), remote_strangers_, whose);
  }
}

void Server::keep(std::unique_ptr<Connection> connection, Strangers& strangers, const std::string& whose) {
  Connection& kept = *connection;
  kept.number = ++connection_numbers_;
  connections_.emplace(kept.number, std::move(connection));
  add_stranger(kept, strangers, whose);
}

void Server::add_stranger(Connection& connection, Strangers& strangers, const std::string& whose) {
  strangers.add(connection, whose);
  while (Connection* const surplus = strangers.surplus()) {
    // Who has said by now who it is stays.
    surplus->receive();
    if (strangers.surplus() != surplus) continue;
    strangers.remove(*surplus);
    surplus->close("others wait to say who they are");
  }
}

Result<void> Server::admit(Connection& connection) {
  const Peer& peer = connection.peer();
  PlaceShares& places = peer.remote ? remote_places_ : places_;
  if (peer.administrator) {
    places.take_anyway(peer.uid);
    return {};
  }
  if (places.take(peer.uid)) return {};
  return fail(ErrorCode::busy,
              fmt::format("user {} has {} connections of the {} that this server takes, and the rest is kept for "
                          "others; close some, then try again",
                          peer.uid, places.taken_by(peer.uid), places.places()));
}

void Server::has_said_hello(Connection& connection) {
  remote_strangers_.remove(connection);
  add_stranger(connection, challenged_, connection.peer().remote->network);
}

void Server::no_stranger(Connection& connection) {
  for (Strangers* const strangers : {&strangers_, &remote_strangers_, &challenged_}) strangers->remove(connection);
}

void Server::pause_accepting() {
  // Out of descriptors, most likely. The waiting client would wake the loop again at once, and again.
  const int listener = listener_.get();
  loop_->change(listener, 0);
  loop_->at(monotonic_ns() + accept_pause_ms * 1'000'000, [this, listener] {
    if (listener_.valid()) loop_->change(listener, EPOLLIN);
  });
}

void Server::remove(Connection& connection) {
  readers_->pins().forget_process(connection.peer().pid);
  no_stranger(connection);
  if (connection.has_place()) (connection.is_remote() ? remote_places_ : places_).give_back(connection.peer().uid);
  connections_.erase(connection.number);
  // It may have been the last that could write to a segment.
  reservations_->space_may_be_free();
}

void Server::run() {
  if (checks_) {
    checks_->turn();  // what recovery has made
    loop_->after_each_turn([this] { checks_->turn(); });
  }
  loop_->run();
}

void Server::stop() {
  remote_->stop_listening();
  listener_.close();
  loop_->stop();
}

Result<void> Server::flush_everything() {
  // To clients this looks like a crash: they come back to the next server.
  for (auto& [number, connection] : connections_) connection->abandon();
  // Jobs under way end first; their results are still taken.
  sync_worker_->finish();
  errand_worker_->end();
  counter_worker_->end();
  side_worker_->end();
  loop_->post([this] { loop_->stop(); });
  loop_->run();
  Result<void> all;
  for (auto& [name, reservation] : reservations_->all()) {
    for (auto& [stream_name, stream] : reservation->streams()) {
      if (auto flushed = stream->flusher().flush_now(); !flushed && all) all = std::move(flushed);
    }
  }
  return all;
}

ServerInfo Server::info() const {
  ServerInfo info;
  info.version = version_text;
  info.root = options_.root;
  info.pid = static_cast<std::uint32_t>(::getpid());
  info.started_ns = started_ns_;
  info.pool_bytes = pool_bytes_;
  info.reserved_bytes = reservations_->reserved_bytes();
  info.granularity_bytes = storage::granularity_bytes;
  info.clients = static_cast<std::uint32_t>(connections_.size());
  info.reservations = static_cast<std::uint32_t>(reservations_->all().size());
  info.uuid = identity_.uuid;
  info.storage_incarnation = identity_.storage_incarnation;
  return info;
}

Result<void> Server::revoke_token(const std::string& token) {
  ASSIGN_OR_RETURN(const auto claims, remote_->revoke_token(token));
  for (auto& [name, reservation] : reservations_->all()) {
    OtherMembers* const others = reservation->space().segments().others();
    if (others != nullptr && reservation->record().id == claims.reservation_id) others->fence_reader(claims.uid);
  }
  for (auto& [number, connection] : connections_) {
    if (connection->is_remote() && connection->greeted() && connection->peer().remote->token == claims.serial)
      connection->close("its token was revoked");
  }
  return {};
}

std::vector<std::string> Server::unprotected() const {
  std::vector<std::string> gaps;
  if (!options_.listen.empty() && !options_.encrypts_control) {
    gaps.emplace_back(
        "control_encryption is off: whoever is between the server and clients on other nodes can read, change and "
        "forge their messages; unless you trust the network, restart the server without this setting");
  }
  if (!options_.fabric.empty()) {
    gaps.emplace_back(
        "data may travel by libfabric: whoever reaches the ports that it opens can end the server, and do what it can; "
        "unless you trust all users of the network and of its nodes, restart the server without --fabric");
  }
  return gaps;
}

wire::WelcomeT Server::welcome() const {
  wire::WelcomeT welcome;
  welcome.version = protocol::protocol_version;
  welcome.server_version = version_text;
  welcome.server_run = run_number_;
  welcome.pid = static_cast<std::uint32_t>(::getpid());
  welcome.root_uuid = identity_.uuid;
  return welcome;
}

wire::WelcomeT Server::remote_welcome() const {
  auto welcome = this->welcome();
  welcome.boot_id = boot_id_;
  welcome.socket = socket_path_;
  return welcome;
}

std::unique_ptr<Session> Server::make_session(Connection& connection, protocol::MessageType first) {
  switch (first) {
    case protocol::MessageType::writer_open:
    case protocol::MessageType::writer_rejoin:
    case protocol::MessageType::ranks_missing:
      return std::make_unique<WriterSession>(connection, *this);
    case protocol::MessageType::reader_open:
      return std::make_unique<ReaderSession>(connection, *this, *readers_);
    case protocol::MessageType::member_open:
      return std::make_unique<MemberSession>(connection, *this);
    case protocol::MessageType::member_look:
    case protocol::MessageType::member_sync:
    case protocol::MessageType::member_fence:
    case protocol::MessageType::member_probe:
    case protocol::MessageType::member_checksum:
      return std::make_unique<HomeSession>(connection, *this);
    default:
      return std::make_unique<AdminSession>(connection, *this);
  }
}

Result<Followers*> Server::find_to_read(const Peer& peer, const std::string& reservation_name,
                                        const std::string& stream_name) {
  ASSIGN_OR_RETURN(auto reservation, reservations_->find(reservation_name, peer, Rights::read));
  RETURN_IF_ERROR(reservation->check_readable(stream_name));
  Stream* const stream = reservation->find_stream(stream_name);
  return stream == nullptr ? nullptr : &stream->followers();
}

AccessRights Server::rights_of(const Peer& peer, const std::string& reservation) {
  const auto found = reservations_->all().find(reservation);
  if (found == reservations_->all().end() || found->second->retiring()) return {};
  return found->second->rights_of(peer);
}

void Server::rights_changed(const std::string& reservation) {
  const auto found = reservations_->all().find(reservation);
  if (found != reservations_->all().end())
    if (OtherMembers* const others = found->second->space().segments().others())
      others->fence_before(access_generation(found->second->record()));
  for (auto& [number, connection] : connections_) connection->rights_changed(reservation);
}

void Server::end_clients(const std::string& reservation, const std::string& why) {
  for (auto& [number, connection] : connections_)
    if (connection->uses(reservation)) connection->close(why);
}

MemberShare* Server::find_share(const std::string& reservation_id) {
  for (const auto& [name, reservation] : reservations_->all())
    if (reservation->record().id == reservation_id && !reservation->retiring()) return reservation->share();
  return nullptr;
}

Result<void> Server::check_place_for_stream(uid_t owner) const {
  if (owner == 0 || owner == ::geteuid()) return {};
  const auto [all, own] = reservations_->count_streams(owner);
  if (PlaceShares::may_take(places_for_streams(), all, own)) return {};
  return fail(
      ErrorCode::no_space,
      fmt::format("the reservations of user {} have {} streams of the {} that this server takes, and the rest is "
                  "kept for others; remove some with `forebay stream remove`",
                  owner, own, places_for_streams()));
}

Result<WriterGroup*> Server::find_to_write(const Peer& peer, const std::string& reservation_name,
                                           const std::string& stream_name, bool make) {
  ASSIGN_OR_RETURN(auto reservation, reservations_->find(reservation_name, peer, Rights::write));
  const std::string where = "reservation " + reservation_name;
  if (!is_valid_name(stream_name)) return fail(ErrorCode::invalid_argument, describe_bad_name(stream_name), where);
  if (stream_name == "files") {
    return fail(ErrorCode::invalid_argument, "\"files\" is the reservation's file tree and cannot be a stream's name",
                where);
  }
  if (make) {
    ASSIGN_OR_RETURN(auto made, reservation->find_or_make_stream(stream_name));
    return &made->group();
  }
  if (Stream* const stream = reservation->find_stream(stream_name)) return &stream->group();
  RETURN_IF_ERROR(reservation->check_readable(stream_name));
  return fail(ErrorCode::not_found, "no such stream", "stream " + reservation_name + "/" + stream_name);
}

}  // namespace forebay::server
