// SPDX-License-Identifier: Apache-2.0
#include "admin_session.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "audit.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size_text.h"
#include "base/uuid.h"
#include "server.h"
#include "stream.h"

namespace forebay::server {
namespace {

constexpr std::uint32_t steps_a_message_max = 4096;

wire::ReservationT to_wire(const ReservationInfo& info) {
  wire::ReservationT reservation;
  reservation.name = info.name;
  reservation.id = info.id;
  reservation.capacity_bytes = info.capacity_bytes;
  reservation.used_bytes = info.used_bytes;
  reservation.files_bytes = info.files_bytes;
  reservation.segment_bytes = info.segment_bytes;
  reservation.lifetime = static_cast<std::uint8_t>(info.lifetime);
  reservation.access_mode = static_cast<std::uint8_t>(info.access_mode);
  reservation.type = static_cast<std::uint8_t>(info.type);
  reservation.owner_uid = info.owner_uid;
  reservation.owner_gid = info.owner_gid;
  reservation.created_ns = info.created_ns;
  reservation.streams = info.streams;
  reservation.files_path = info.files_path;
  return reservation;
}

template <class Number>
flatbuffers::Optional<Number> to_wire(const std::optional<Number>& number) {
  return number ? flatbuffers::Optional<Number>(*number) : flatbuffers::nullopt;
}

wire::StreamT to_wire(const StreamInfo& info) {
  wire::StreamT stream;
  stream.name = info.name;
  stream.uuid = info.uuid;
  stream.epoch = info.epoch;
  stream.incarnation = info.incarnation;
  stream.ranks = info.ranks;
  stream.status = static_cast<std::uint8_t>(info.status);
  stream.status_text = info.status_text;
  stream.oldest = to_wire(info.oldest);
  stream.committed = to_wire(info.committed);
  stream.durable = to_wire(info.durable);
  stream.staged = to_wire(info.staged);
  stream.steps = info.steps;
  stream.size_bytes = info.size_bytes;
  stream.step_open = info.step_open;
  stream.retention = to_string(info.retention);
  for (const ConsumerInfo& consumer : info.consumers) {
    auto entry = std::make_unique<wire::ConsumerT>();
    entry->name = consumer.name;
    entry->position = consumer.position;
    entry->lag_steps = consumer.lag_steps;
    entry->connected = consumer.connected;
    entry->holder_pid = consumer.holder_pid;
    stream.consumers.push_back(std::move(entry));
  }
  return stream;
}

/// The table of a message, unpacked.
template <class Table>
Result<std::unique_ptr<typename Table::NativeTableType>> unpacked(const protocol::Message& message) {
  auto body = protocol::body_of<Table>(message);
  if (!body) return fail(std::move(body.error()));
  return std::unique_ptr<typename Table::NativeTableType>((*body)->UnPack());
}

Result<Stream*> find_stream(Connection& connection, const std::string& reservation_name, const std::string& name) {
  auto reservation = connection.server().find_reservation(reservation_name, connection.peer());
  if (!reservation) return fail(std::move(reservation.error()));
  Stream* stream = (*reservation)->find_stream(name);
  if (stream == nullptr) {
    return fail(ErrorCode::not_found, "no such stream; `forebay streams " + reservation_name + "` lists what is there",
                "stream " + reservation_name + "/" + name);
  }
  return stream;
}

/// Why removing these streams would lose something; nothing if it would not.
std::optional<Error> loss(const std::vector<Stream*>& streams) {
  for (Stream* stream : streams) {
    const std::string where = "stream " + stream->path();
    if (stream->group().active())
      return Error{ErrorCode::refused, "it is being written; end the writers, or force it", where};
    const auto precious =
        std::ranges::count_if(stream->state().steps, [](const auto& entry) { return entry.second.precious(); });
    if (precious > 0) {
      return Error{ErrorCode::refused,
                   fmt::format("{} precious steps are not staged out yet; stage them out (`forebay stage-out {} DEST "
                               "--every N`), or force it",
                               precious, stream->path()),
                   where};
    }
  }
  return std::nullopt;
}

}  // namespace

void AdminSession::handle(protocol::Message message) {
  if (auto answered = answer(message); !answered) connection_.answer_failure(message.request, answered.error());
}

Result<void> AdminSession::answer(const protocol::Message& message) {
  using protocol::MessageType;
  switch (message.type) {
    case MessageType::server_query:
      return server_query(message);
    case MessageType::reservation_create:
      return create_reservation(message);
    case MessageType::reservation_destroy:
      return destroy_reservation(message);
    case MessageType::reservations_query:
      return query_reservations(message);
    case MessageType::streams_query:
      return query_streams(message);
    case MessageType::steps_query:
      return query_steps(message);
    case MessageType::stream_remove:
      return remove_stream(message);
    case MessageType::consumer_remove:
      return remove_consumer(message);
    case MessageType::retention_set:
      return set_retention(message);
    case MessageType::staged_mark:
      return mark_staged(message);
    case MessageType::precious_set:
      return set_precious(message);
    case MessageType::audit_query:
      return audit(message);
    default:
      return fail(ErrorCode::protocol, std::string("unexpected message: ") + wire::EnumNameMessageType(message.type));
  }
}

Result<void> AdminSession::server_query(const protocol::Message& message) {
  const ServerInfo info = connection_.server().info();
  wire::ServerAnswerT answer;
  answer.version = info.version;
  answer.root = info.root;
  answer.pid = info.pid;
  answer.started_ns = info.started_ns;
  answer.pool_bytes = info.pool_bytes;
  answer.reserved_bytes = info.reserved_bytes;
  answer.granularity_bytes = info.granularity_bytes;
  answer.clients = info.clients;
  answer.reservations = info.reservations;
  connection_.answer(protocol::MessageType::server_answer, message.request, answer);
  return {};
}

Result<void> AdminSession::create_reservation(const protocol::Message& message) {
  auto wish = unpacked<wire::ReservationCreate>(message);
  if (!wish) return fail(std::move(wish.error()));
  const wire::ReservationCreateT& wanted = **wish;
  const std::string where = "reservation " + wanted.name;
  Server& server = connection_.server();
  const Peer& peer = connection_.peer();
  if (auto named = check_reservation_name(wanted.name); !named) return named;
  if (!peer.administrator)
    return fail(ErrorCode::permission_denied,
                "only the server's own user may create reservations; ask the manager (`forebay create`)", where);
  if (wanted.lifetime < 1 || wanted.lifetime > 2)
    return fail(ErrorCode::invalid_argument, "the lifetime is job or persistent", where);
  if (wanted.access_mode != static_cast<std::uint8_t>(AccessMode::striped) ||
      wanted.type != static_cast<std::uint8_t>(ReservationType::scratch)) {
    return fail(ErrorCode::unsupported, "only striped scratch reservations exist so far", where);
  }
  auto layout = storage::layout_for(wanted.capacity_bytes);
  if (!layout) return fail(std::move(layout.error()));
  if (server.names_in_work.contains(wanted.name))
    return fail(ErrorCode::busy, "the reservation is being created or destroyed right now; try again", where);

  reservation::ReservationT record;
  record.id = random_uuid();
  record.name = wanted.name;
  record.capacity_bytes = layout->capacity_bytes;
  record.segment_bytes = layout->segment_bytes;
  record.journal_reserve_bytes = layout->journal_reserve_bytes;
  record.stripe_bytes = layout->segment_bytes;
  record.lifetime = wanted.lifetime;
  record.access_mode = wanted.access_mode;
  record.type = wanted.type;
  record.owner_uid = wanted.owner_uid.value_or(peer.uid);
  record.owner_gid = wanted.owner_gid.value_or(peer.gid);
  record.created_ns = wall_clock_ns();
  record.members.push_back(std::make_unique<reservation::MemberT>());
  record.members.front()->segments = layout->segments;

  if (const auto existing = server.reservations().find(wanted.name); existing != server.reservations().end()) {
    const auto& have = existing->second->record();
    const bool same = have.capacity_bytes == record.capacity_bytes && have.lifetime == record.lifetime &&
                      have.owner_uid == record.owner_uid && !existing->second->retiring;
    if (!same) {
      return fail(
          ErrorCode::already_exists,
          fmt::format("a reservation of this name exists with {} for user {}; destroy it first, or take another name",
                      size_text(have.capacity_bytes), have.owner_uid),
          where);
    }
    wire::ReservationsAnswerT answer;
    answer.reservations.push_back(std::make_unique<wire::ReservationT>(to_wire(existing->second->info(0))));
    connection_.answer(protocol::MessageType::reservations_answer, message.request, answer);
    return {};
  }
  const ServerInfo pool = server.info();
  if (record.capacity_bytes > pool.pool_bytes - std::min(pool.pool_bytes, pool.reserved_bytes)) {
    return fail(
        ErrorCode::no_space,
        fmt::format("the pool has {}, of which {} are reserved: {} more do not fit; destroy a reservation, or "
                    "run `forebay down`, then `forebay up` with a larger --capacity",
                    size_text(pool.pool_bytes), size_text(pool.reserved_bytes), size_text(record.capacity_bytes)),
        where);
  }
  server.names_in_work.insert(record.name);
  server.bytes_in_work += record.capacity_bytes;
  auto shared = std::make_shared<reservation::ReservationT>(std::move(record));
  server.errand_worker().add([&server, this, alive = connection_.alive(), shared, request = message.request] {
    auto created = server.store().create(*shared);
    server.loop().post([&server, this, alive, shared, request, created = std::move(created)] {
      server.names_in_work.erase(shared->name);
      server.bytes_in_work -= shared->capacity_bytes;
      if (!created) {
        if (alive.expired()) return;
        Error error = created.error();
        if (error.code == ErrorCode::no_space) {
          error.what = "reservation " + shared->name + ": " + error.what + "; the file system of " +
                       server.options().root + " has too little room for " + std::to_string(shared->capacity_bytes) +
                       " bytes: make some, or create a smaller reservation";
        }
        connection_.answer_failure(request, error);
        return;
      }
      log::info("reservation {} created: {} bytes in {} segments", shared->name, shared->capacity_bytes,
                shared->members.front()->segments);
      Reservation& reservation = server.add_reservation(std::move(*shared));
      if (alive.expired()) return;
      wire::ReservationsAnswerT answer;
      answer.reservations.push_back(std::make_unique<wire::ReservationT>(to_wire(reservation.info(0))));
      connection_.answer(protocol::MessageType::reservations_answer, request, answer);
    });
  });
  return {};
}

Result<void> AdminSession::destroy_reservation(const protocol::Message& message) {
  auto wish = unpacked<wire::ReservationDestroy>(message);
  if (!wish) return fail(std::move(wish.error()));
  Server& server = connection_.server();
  const std::string name = (*wish)->name;
  const std::string where = "reservation " + name;
  const Peer& peer = connection_.peer();
  const auto found = server.reservations().find(name);
  // Whoever may not use the reservation is told the same whether there is one, there is none, or it is in work.
  if (found == server.reservations().end() && !peer.administrator) return fail(Reservation::denial(name, peer));
  if (found != server.reservations().end()) {
    if (auto admitted = found->second->admit(peer); !admitted) return admitted;
    if (!found->second->owned_by(peer))
      return fail(ErrorCode::permission_denied, "only its owner may destroy a reservation", where);
  }
  if (server.names_in_work.contains(name))
    return fail(ErrorCode::busy, "the reservation is being created or destroyed right now; try again", where);
  if (found == server.reservations().end()) {
    connection_.answer_done(message.request);
    return {};
  }
  Reservation& reservation = *found->second;
  if (!(*wish)->force) {
    std::vector<Stream*> streams;
    for (auto& [stream_name, stream] : reservation.streams()) streams.push_back(stream.get());
    if (const auto error = loss(streams)) return fail(*error);
  }
  reservation.retiring = true;
  server.names_in_work.insert(name);
  server.errand_worker().add(
      [&server, this, alive = connection_.alive(), name, id = reservation.record().id, request = message.request] {
        auto retired = server.store().retire(id);
        server.loop().post([&server, this, alive, name, request, retired = std::move(retired)] {
          server.names_in_work.erase(name);
          if (retired) {
            log::info("reservation {} destroyed", name);
            server.forget_reservation(name);
          } else if (const auto still = server.reservations().find(name); still != server.reservations().end()) {
            still->second->retiring = false;
          }
          if (alive.expired()) return;
          if (retired) {
            connection_.answer_done(request);
          } else {
            connection_.answer_failure(request, retired.error());
          }
        });
      });
  return {};
}

Result<void> AdminSession::query_reservations(const protocol::Message& message) {
  auto wish = unpacked<wire::ReservationsQuery>(message);
  if (!wish) return fail(std::move(wish.error()));
  Server& server = connection_.server();
  std::vector<ReservationInfo> infos;
  if (!(*wish)->name.empty()) {
    auto reservation = server.find_reservation((*wish)->name, connection_.peer());
    if (!reservation) return fail(std::move(reservation.error()));
    infos.push_back((*reservation)->info(0));
  } else {
    for (auto& [name, reservation] : server.reservations()) {
      if (!reservation->retiring && reservation->admit(connection_.peer())) infos.push_back(reservation->info(0));
    }
  }
  // Files are counted by walking their trees, which may take long.
  server.errand_worker().add(
      [&server, this, alive = connection_.alive(), infos = std::move(infos), request = message.request]() mutable {
        for (ReservationInfo& info : infos) {
          const auto measured = server.store().files_bytes(info.id);
          if (!measured) log::warning("files of {} are not counted: {}", info.name, measured.error().message());
          info.files_bytes = measured.value_or(0);
        }
        server.loop().post([this, alive, infos = std::move(infos), request] {
          if (alive.expired()) return;
          wire::ReservationsAnswerT answer;
          for (const ReservationInfo& info : infos)
            answer.reservations.push_back(std::make_unique<wire::ReservationT>(to_wire(info)));
          connection_.answer(protocol::MessageType::reservations_answer, request, answer);
        });
      });
  return {};
}

Result<void> AdminSession::query_streams(const protocol::Message& message) {
  auto wish = unpacked<wire::StreamsQuery>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto reservation = connection_.server().find_reservation((*wish)->reservation, connection_.peer());
  if (!reservation) return fail(std::move(reservation.error()));
  wire::StreamsAnswerT answer;
  if ((*wish)->stream.empty()) {
    for (auto& [name, stream] : (*reservation)->streams())
      answer.streams.push_back(std::make_unique<wire::StreamT>(to_wire(stream->info())));
  } else {
    auto stream = find_stream(connection_, (*wish)->reservation, (*wish)->stream);
    if (!stream) return fail(std::move(stream.error()));
    answer.streams.push_back(std::make_unique<wire::StreamT>(to_wire((*stream)->info())));
  }
  connection_.answer(protocol::MessageType::streams_answer, message.request, answer);
  return {};
}

Result<void> AdminSession::query_steps(const protocol::Message& message) {
  auto wish = unpacked<wire::StepsQuery>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream(connection_, (*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  connection_.answer(protocol::MessageType::steps_answer, message.request,
                     (*stream)->list_steps((*wish)->first, std::min((*wish)->steps_max, steps_a_message_max)));
  return {};
}

Result<void> AdminSession::remove_stream(const protocol::Message& message) {
  auto wish = unpacked<wire::StreamRemove>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto reservation = connection_.server().find_reservation((*wish)->reservation, connection_.peer());
  if (!reservation) return fail(std::move(reservation.error()));
  Stream* stream = (*reservation)->find_stream((*wish)->stream);
  if (stream != nullptr && !(*wish)->force) {
    if (const auto error = loss({stream})) return fail(*error);
  }
  if ((*reservation)->unreadable((*wish)->stream) != nullptr && !(*wish)->force) {
    return fail(ErrorCode::refused, "it cannot be opened, but its steps may be whole; mend the disk, or force it",
                "stream " + (*wish)->reservation + "/" + (*wish)->stream);
  }
  if (auto removed = (*reservation)->remove_stream((*wish)->stream); !removed) return removed;
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::remove_consumer(const protocol::Message& message) {
  auto wish = unpacked<wire::ConsumerRemove>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream(connection_, (*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  for (const ConsumerInfo& consumer : (*stream)->followers().consumers()) {
    if (consumer.name == (*wish)->consumer && consumer.connected) {
      return fail(ErrorCode::busy, fmt::format("process {} reads as this consumer; end it first", consumer.holder_pid),
                  "consumer " + consumer.name);
    }
  }
  if ((*stream)->state().cursors.contains((*wish)->consumer)) {
    journal::CursorRemovedT removed;
    removed.consumer = (*wish)->consumer;
    if (auto recorded = (*stream)->record(storage::RecordType::cursor_removed, std::move(removed)); !recorded)
      return recorded;
    (*stream)->apply_retention();
    (*stream)->reservation().space_changed();
  }
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::set_retention(const protocol::Message& message) {
  auto wish = unpacked<wire::RetentionSet>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream(connection_, (*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  auto retention = parse_retention((*wish)->retention);
  if (!retention) return fail(std::move(retention.error()));
  journal::RetentionSetT set;
  set.retention = to_string(*retention);
  if (auto recorded = (*stream)->record(storage::RecordType::retention_set, std::move(set)); !recorded) return recorded;
  (*stream)->apply_retention();
  (*stream)->reservation().space_changed();
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::mark_staged(const protocol::Message& message) {
  auto wish = unpacked<wire::StagedMark>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream(connection_, (*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  if (auto marked = (*stream)->mark_staged((*wish)->epoch, (*wish)->steps, (*wish)->receipt); !marked) return marked;
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::set_precious(const protocol::Message& message) {
  auto wish = unpacked<wire::PreciousSet>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream(connection_, (*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  for (std::uint64_t step : (*wish)->steps) {
    if (!(*stream)->state().steps.contains(step))
      return fail(ErrorCode::not_found, "no such step is kept",
                  fmt::format("stream {}, step {}", (*stream)->path(), step));
  }
  journal::PreciousSetT set;
  set.steps = (*wish)->steps;
  set.precious = (*wish)->precious;
  if (auto recorded = (*stream)->record(storage::RecordType::precious_set, std::move(set)); !recorded) return recorded;
  (*stream)->apply_retention();
  (*stream)->reservation().space_changed();
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::audit(const protocol::Message& message) {
  auto wish = unpacked<wire::AuditQuery>(message);
  if (!wish) return fail(std::move(wish.error()));
  if (!connection_.peer().administrator)
    return fail(ErrorCode::permission_denied, "only the server's own user may audit it");
  Server& server = connection_.server();
  const auto answer = [this](std::uint32_t request, const std::vector<Finding>& findings) {
    wire::AuditAnswerT found;
    for (const Finding& finding : findings) {
      auto entry = std::make_unique<wire::FindingT>();
      entry->severity = static_cast<std::uint8_t>(finding.severity);
      entry->where = finding.where;
      entry->what = finding.what;
      found.findings.push_back(std::move(entry));
    }
    connection_.answer(protocol::MessageType::audit_answer, request, found);
  };
  std::vector<Finding> findings = audit_accounting(server);
  if (!(*wish)->read_data) {
    answer(message.request, findings);
    return {};
  }
  server.errand_worker().add([&server, answer, alive = connection_.alive(), steps = steps_to_read(server),
                              findings = std::move(findings), request = message.request]() mutable {
    auto damaged = read_steps(server, steps);
    server.loop().post(
        [&server, answer, alive, damaged = std::move(damaged), findings = std::move(findings), request]() mutable {
          if (alive.expired()) return;
          for (Finding& finding : still_damaged(server, damaged)) findings.push_back(std::move(finding));
          answer(request, findings);
        });
  });
  return {};
}

}  // namespace forebay::server
