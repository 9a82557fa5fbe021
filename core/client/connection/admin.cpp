// SPDX-License-Identifier: Apache-2.0
// Administration: each call is one request. All calls are idempotent, so if the server restarts during a call, it is
// sent again to the new one.
#include <algorithm>
#include <iterator>
#include <span>

#include <forebay/admin.h>

#include "base/return_error.h"
#include "client/connection/connection_guard.h"
#include "client/connection/opening_process.h"
#include "client/connection/reconnect.h"
#include "client/connection/steps_listing.h"
#include "fabric/token.h"
#include "protocol/record_conversion.h"

namespace forebay {

using client::Connection;
using protocol::Message;
using protocol::MessageType;
using protocol::records_of;

namespace {

constexpr std::int64_t manager_timeout_ms = 130'000;
constexpr std::uint64_t probe_request_bytes = std::uint64_t{8} << 20;

template <class T>
void remember_where(Result<T>& result, const std::string& where) {
  if (!result && result.error().where.empty()) result.error().where = where;
}

}  // namespace

struct Admin::Impl {
  ServerPlace place;
  InterruptHook interrupt;
  std::int64_t reconnect_timeout_ms = 0;
  std::shared_ptr<Connection> connection;
  client::OpeningProcess opening_process;

  Result<void> connect(const client::Resume& resume) {
    auto opened = client::connect_server(place.now(), interrupt);
    if (opened) {
      auto resumed = resume(*opened);
      if (resumed) connection = std::move(*opened);
      if (resumed || !(*opened)->is_broken()) return resumed;
    }
    if (reconnect_timeout_ms == 0) {
      return opened ? fail(ErrorCode::disconnected, "the server has gone again", place.text()) : fail(opened.error());
    }
    opened = client::reconnect_server(place, Deadline::after_ms(reconnect_timeout_ms), interrupt, resume);
    if (!opened) return fail(std::move(opened.error()));
    connection = std::move(*opened);
    return {};
  }

  template <class Object>
  Result<Message> ask(MessageType type, const Object& body, MessageType expected, const std::string& where = {}) {
    RETURN_IF_ERROR(opening_process.check());
    const client::ConnectionGuard guard([this] { connection->give_up(); });
    auto answer = connection->call(type, body, expected, connection->request_deadline());
    if (!answer && connection->is_broken()) {
      auto connected = connect([&](const std::shared_ptr<Connection>& fresh) -> Result<void> {
        answer = fresh->call(type, body, expected, fresh->request_deadline());
        if (answer) return {};
        return fail(answer.error());
      });
      // What a server that is there says about the request stands in `answer`.
      if (!connected && (answer || answer.error().code != connected.error().code))
        return fail(std::move(connected.error()));
    }
    remember_where(answer, where);
    return answer;
  }

  template <class Object>
  Result<void> order(MessageType type, const Object& body, const std::string& where) {
    RETURN_IF_ERROR(ask(type, body, MessageType::done, where));
    return {};
  }

  template <class Object>
  Result<std::vector<ReservationInfo>> ask_reservations(MessageType type, const Object& body,
                                                        const std::string& where = {}) {
    ASSIGN_OR_RETURN(auto answer, ask(type, body, MessageType::reservations_answer, where));
    ASSIGN_OR_RETURN(auto reservations, protocol::body_of<wire::ReservationsAnswer>(answer));
    return records_of<ReservationInfo>(reservations->reservations());
  }

  Result<Message> ask_streams(const wire::StreamsQueryT& query, const std::string& where) {
    return ask(MessageType::streams_query, query, MessageType::streams_answer, where);
  }

  Result<std::vector<StreamInfo>> query_streams(std::string_view reservation, std::string_view stream,
                                                const std::string& where) {
    wire::StreamsQueryT query;
    query.reservation = reservation;
    query.stream = stream;
    std::vector<StreamInfo> all;
    for (bool more = true; more;) {
      ASSIGN_OR_RETURN(auto answer, ask_streams(query, where));
      ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StreamsAnswer>(answer));
      ASSIGN_OR_RETURN(auto page, records_of<StreamInfo>(body->streams()));
      more = body->more();
      // Names rise, so it comes to an end whatever the server says.
      if (more && (page.empty() || page.back().name <= query.after))
        return fail(ErrorCode::protocol, "the server says that there are more streams, and tells none", where);
      if (more) query.after = page.back().name;
      std::ranges::move(page, std::back_inserter(all));
    }
    return all;
  }
};

Admin::Admin(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Admin::~Admin() = default;

Result<std::unique_ptr<Admin>> Admin::connect(std::string_view socket_path, InterruptHook interrupt,
                                              std::int64_t reconnect_timeout_ms) {
  ASSIGN_OR_RETURN(auto place, ServerPlace::find(socket_path));
  return connect_to(std::move(place), std::move(interrupt), reconnect_timeout_ms);
}

Result<std::unique_ptr<Admin>> Admin::connect_to(ServerPlace place, InterruptHook interrupt,
                                                 std::int64_t reconnect_timeout_ms) {
  auto impl = std::make_unique<Impl>();
  impl->place = std::move(place);
  impl->interrupt = std::move(interrupt);
  impl->reconnect_timeout_ms = reconnect_timeout_ms;
  const auto at_once = [](const std::shared_ptr<Connection>&) { return Result<void>(); };
  RETURN_IF_ERROR(impl->connect(at_once));
  return std::unique_ptr<Admin>(new Admin(std::move(impl)));
}

Result<PingInfo> Admin::ping(std::uint32_t requests, std::uint64_t bytes) {
  const bool remote = impl_->connection->is_remote();
  PingInfo info;
  std::vector<std::int64_t> times_ns;
  for (std::uint32_t i = 0; i < std::max(requests, 1U); ++i) {
    const std::int64_t begin_ns = monotonic_ns();
    if (remote) {
      RETURN_IF_ERROR(impl_->order(MessageType::heartbeat, wire::HeartbeatT(), impl_->place.text()));
    } else {
      RETURN_IF_ERROR(server());
    }
    times_ns.push_back(monotonic_ns() - begin_ns);
  }
  std::ranges::sort(times_ns);
  info.latency_ns = static_cast<std::uint64_t>(times_ns[times_ns.size() / 2]);
  info.latency_least_ns = static_cast<std::uint64_t>(times_ns.front());
  info.transport = "local";
  if (!remote) return info;
  Connection& connection = *impl_->connection;
  std::vector<std::byte> memory(std::clamp<std::uint64_t>(bytes, 1, probe_request_bytes));
  RETURN_IF_ERROR(connection.probe(std::span(memory).first(1)));  // opens the path
  const std::int64_t begin_ns = monotonic_ns();
  std::uint64_t got = 0;
  for (; got < bytes; got += memory.size()) RETURN_IF_ERROR(connection.probe(memory));
  const double seconds = static_cast<double>(monotonic_ns() - begin_ns) * 1e-9;
  if (got > 0) info.bytes_per_second = static_cast<std::uint64_t>(static_cast<double>(got) / seconds);
  info.provider = connection.provider();
  info.transport = info.provider.empty() ? "tcp" : "fabric";
  return info;
}

Result<ServerInfo> Admin::server() {
  ASSIGN_OR_RETURN(auto answer,
                   impl_->ask(MessageType::server_query, wire::ServerQueryT(), MessageType::server_answer));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::ServerAnswer>(answer));
  wire::ServerAnswerT table;
  body->UnPackTo(&table);
  return protocol::from_wire<ServerInfo>(table);
}

Result<ReservationInfo> Admin::create_reservation(const ReservationSpec& spec) {
  const std::string where = "reservation " + spec.name;
  ASSIGN_OR_RETURN(auto created, impl_->ask_reservations(MessageType::reservation_create,
                                                         protocol::to_wire<wire::ReservationCreateT>(spec), where));
  if (created.empty()) return fail(ErrorCode::protocol, "the server did not say what it created", where);
  return std::move(created.back());
}

Result<void> Admin::destroy_reservation(std::string_view name, bool force) {
  wire::ReservationDestroyT destroy;
  destroy.name = name;
  destroy.force = force;
  return impl_->order(MessageType::reservation_destroy, destroy, "reservation " + destroy.name);
}

Result<ReservationInfo> Admin::adopt_files(std::string_view name, std::string_view path) {
  wire::FilesAdoptT request;
  request.name = name;
  request.path = path;
  const std::string where = "reservation " + std::string(name);
  ASSIGN_OR_RETURN(auto adopted, impl_->ask_reservations(MessageType::files_adopt, request, where));
  if (adopted.empty()) return fail(ErrorCode::protocol, "the server did not say what it adopted", where);
  return std::move(adopted.back());
}

Result<ReservationInfo> Admin::share_reservation(std::string_view name, const Share& share) {
  wire::ReservationShareT request;
  request.name = name;
  request.share = std::make_unique<wire::ShareT>(protocol::to_wire<wire::ShareT>(share));
  const std::string where = "reservation " + request.name;
  ASSIGN_OR_RETURN(auto shared, impl_->ask_reservations(MessageType::reservation_share, request, where));
  if (shared.empty()) return fail(ErrorCode::protocol, "the server did not say what it shared", where);
  return std::move(shared.back());
}

Result<ReservationInfo> Admin::change_reservation(std::string_view name, std::optional<Lifetime> lifetime,
                                                  std::optional<std::uint64_t> files_bytes) {
  wire::ReservationChangeT request;
  request.name = name;
  if (lifetime) request.lifetime = static_cast<std::uint8_t>(*lifetime);
  if (files_bytes) request.files_bytes = *files_bytes;
  const std::string where = "reservation " + request.name;
  ASSIGN_OR_RETURN(auto changed, impl_->ask_reservations(MessageType::reservation_change, request, where));
  if (changed.empty()) return fail(ErrorCode::protocol, "the server did not say what it changed", where);
  return std::move(changed.back());
}

Result<std::vector<ReservationInfo>> Admin::reservations(bool count_files,
                                                         const std::optional<std::vector<std::string>>& names,
                                                         std::optional<std::uint32_t> turn_of) {
  wire::ReservationsQueryT query;
  query.uncounted = !count_files;
  query.turn_of = turn_of;
  if (!names) return impl_->ask_reservations(MessageType::reservations_query, query);
  std::vector<ReservationInfo> all;
  for (auto left = std::span(*names); !left.empty();) {
    const auto some = left.first(std::min(left.size(), protocol::names_asked_max));
    query.names.assign(some.begin(), some.end());
    ASSIGN_OR_RETURN(auto found, impl_->ask_reservations(MessageType::reservations_query, query));
    all.insert(all.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
    left = left.subspan(some.size());
  }
  return all;
}

Result<ReservationInfo> Admin::reservation(std::string_view name, bool count_files) {
  wire::ReservationsQueryT query;
  query.name = name;
  query.uncounted = !count_files;
  const std::string where = "reservation " + query.name;
  ASSIGN_OR_RETURN(auto reservations, impl_->ask_reservations(MessageType::reservations_query, query, where));
  for (ReservationInfo& info : reservations) {
    if (info.name == name) return std::move(info);
  }
  return fail(ErrorCode::not_found, "no such reservation; `forebay ls` shows those that you may use", where);
}

Result<std::vector<StreamInfo>> Admin::streams(std::string_view reservation) {
  return impl_->query_streams(reservation, {}, "reservation " + std::string(reservation));
}

Result<std::vector<AwaitedStream>> Admin::awaited_streams(std::string_view reservation) {
  wire::StreamsQueryT query;
  query.reservation = reservation;
  ASSIGN_OR_RETURN(auto answer, impl_->ask_streams(query, "reservation " + query.reservation));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::StreamsAnswer>(answer));
  return records_of<AwaitedStream>(body->awaited());
}

Result<StreamInfo> Admin::stream(const Address& address) {
  const std::string where = "stream " + address.path();
  ASSIGN_OR_RETURN(auto streams, impl_->query_streams(address.reservation, address.stream, where));
  for (StreamInfo& info : streams) {
    if (info.name == address.stream) return std::move(info);
  }
  return fail(ErrorCode::not_found,
              "no such stream; `forebay streams " + address.reservation + "` shows those that exist", where);
}

Result<std::vector<StepSummary>> Admin::steps(const Address& address) {
  return client::list_steps(address, [&](const wire::StepsQueryT& query) {
    return impl_->ask(MessageType::steps_query, query, MessageType::steps_answer, "stream " + address.path());
  });
}

Result<void> Admin::remove_stream(const Address& address, bool force) {
  wire::StreamRemoveT remove;
  remove.reservation = address.reservation;
  remove.stream = address.stream;
  remove.force = force;
  return impl_->order(MessageType::stream_remove, remove, "stream " + address.path());
}

Result<void> Admin::remove_consumer(const Address& address, std::string_view consumer) {
  wire::ConsumerRemoveT remove;
  remove.reservation = address.reservation;
  remove.stream = address.stream;
  remove.consumer = consumer;
  return impl_->order(MessageType::consumer_remove, remove,
                      "stream " + address.path() + ", consumer " + remove.consumer);
}

Result<void> Admin::set_retention(const Address& address, const Retention& retention) {
  wire::RetentionSetT set;
  set.reservation = address.reservation;
  set.stream = address.stream;
  set.retention = to_string(retention);
  return impl_->order(MessageType::retention_set, set, "stream " + address.path());
}

Result<void> Admin::mark_staged(const Address& address, std::uint32_t epoch, const std::vector<std::uint64_t>& steps,
                                std::string_view receipt) {
  wire::StagedMarkT mark;
  mark.reservation = address.reservation;
  mark.stream = address.stream;
  mark.epoch = epoch;
  mark.steps = steps;
  mark.receipt = receipt;
  return impl_->order(MessageType::staged_mark, mark, "stream " + address.path());
}

Result<void> Admin::set_precious(const Address& address, const std::vector<std::uint64_t>& steps, bool precious) {
  wire::PreciousSetT set;
  set.reservation = address.reservation;
  set.stream = address.stream;
  set.steps = steps;
  set.precious = precious;
  return impl_->order(MessageType::precious_set, set, "stream " + address.path());
}

Result<void> Admin::drop_steps(const Address& address, const std::vector<std::uint64_t>& steps) {
  wire::StepsDropT drop;
  drop.reservation = address.reservation;
  drop.stream = address.stream;
  drop.steps = steps;
  return impl_->order(MessageType::steps_drop, drop, "stream " + address.path());
}

Result<std::string> Admin::create_token(std::string_view reservation, bool reads, bool writes, std::uint64_t lifetime_s,
                                        std::optional<std::uint32_t> uid) {
  wire::TokenCreateT request;
  request.reservation = reservation;
  request.rights = (reads ? fabric::right_read : 0) | (writes ? fabric::right_write : 0);
  request.lifetime_s = lifetime_s;
  if (uid) request.uid = *uid;
  ASSIGN_OR_RETURN(auto answer, impl_->ask(MessageType::token_create, request, MessageType::token_answer,
                                           "reservation " + request.reservation));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::TokenAnswer>(answer));
  return protocol::text_of(body->token());
}

Result<void> Admin::revoke_token(std::string_view token) {
  wire::TokenRevokeT request;
  request.token = token;
  RETURN_IF_ERROR(impl_->ask(MessageType::token_revoke, request, MessageType::done, "revoking a token"));
  return {};
}

Result<void> Admin::tell_pool_directory(const PoolDirectory& directory) {
  wire::PoolDirectoryT table;
  table.manager = directory.manager;
  for (const ReservationHome& home : directory.homes) {
    auto entry = std::make_unique<wire::HomeEntryT>();
    entry->name = home.name;
    entry->id = home.id;
    entry->server = home.server;
    table.homes.push_back(std::move(entry));
  }
  for (const ServerOfPool& server : directory.servers) {
    auto entry = std::make_unique<wire::ServerEntryT>();
    entry->uuid = server.uuid;
    entry->name = server.name;
    entry->server = server.server;
    table.servers.push_back(std::move(entry));
  }
  return impl_->order(MessageType::pool_directory, table, impl_->place.text());
}

Result<ManagerAnswer> Admin::call_manager(std::string_view method, std::string_view target, std::string_view body) {
  wire::ManagerCallT call;
  call.method = method;
  call.target = target;
  call.body.assign(body.begin(), body.end());
  const Deadline deadline = Deadline::after_ms(manager_timeout_ms);
  const client::ConnectionGuard guard([this] { impl_->connection->give_up(); });
  ASSIGN_OR_RETURN(const auto message,
                   impl_->connection->call(MessageType::manager_call, call, MessageType::manager_answer, deadline));
  ASSIGN_OR_RETURN(const auto answer, protocol::body_of<wire::ManagerAnswer>(message));
  const auto* const bytes = answer->body();
  ManagerAnswer result{answer->status(), {}};
  if (bytes != nullptr) result.body.assign(bytes->begin(), bytes->end());
  return result;
}

Result<std::vector<Finding>> Admin::audit(bool read_data) {
  wire::AuditQueryT query;
  query.read_data = read_data;
  ASSIGN_OR_RETURN(auto answer, impl_->ask(MessageType::audit_query, query, MessageType::audit_answer));
  ASSIGN_OR_RETURN(auto body, protocol::body_of<wire::AuditAnswer>(answer));
  return records_of<Finding>(body->findings());
}

}  // namespace forebay
