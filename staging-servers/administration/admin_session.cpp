// SPDX-License-Identifier: Apache-2.0
#include "administration/admin_session.h"

#include <algorithm>

#include <fmt/format.h>

#include "administration/admin_requests.h"
#include "administration/administered_server.h"
#include "administration/audit.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

constexpr std::uint32_t steps_a_message_max = 4096;

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

}  // namespace

std::optional<Error> loss_of(const std::vector<Stream*>& streams) {
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

Result<Stream*> AdminSession::find_stream(const std::string& reservation_name, const std::string& name) {
  auto reservation = server_.reservations().find(reservation_name, connection_.peer());
  if (!reservation) return fail(std::move(reservation.error()));
  Stream* stream = (*reservation)->find_stream(name);
  if (stream != nullptr) return stream;
  if (auto readable = (*reservation)->check_readable(name); !readable) return fail(std::move(readable.error()));
  return fail(ErrorCode::not_found, "no such stream; `forebay streams " + reservation_name + "` lists what is there",
              "stream " + reservation_name + "/" + name);
}

Result<void> AdminSession::server_query(const protocol::Message& message) {
  const ServerInfo info = server_.info();
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

Result<void> AdminSession::query_streams(const protocol::Message& message) {
  auto wish = unpacked<wire::StreamsQuery>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto reservation = server_.reservations().find((*wish)->reservation, connection_.peer());
  if (!reservation) return fail(std::move(reservation.error()));
  wire::StreamsAnswerT answer;
  if ((*wish)->stream.empty()) {
    for (auto& [name, stream] : (*reservation)->streams())
      answer.streams.push_back(std::make_unique<wire::StreamT>(to_wire(stream->info())));
  } else {
    auto stream = find_stream((*wish)->reservation, (*wish)->stream);
    if (!stream) return fail(std::move(stream.error()));
    answer.streams.push_back(std::make_unique<wire::StreamT>(to_wire((*stream)->info())));
  }
  connection_.answer(protocol::MessageType::streams_answer, message.request, answer);
  return {};
}

Result<void> AdminSession::query_steps(const protocol::Message& message) {
  auto wish = unpacked<wire::StepsQuery>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream((*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  connection_.answer(protocol::MessageType::steps_answer, message.request,
                     (*stream)->list_steps((*wish)->first, std::min((*wish)->steps_max, steps_a_message_max)));
  return {};
}

Result<void> AdminSession::remove_stream(const protocol::Message& message) {
  auto wish = unpacked<wire::StreamRemove>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto reservation = server_.reservations().find((*wish)->reservation, connection_.peer());
  if (!reservation) return fail(std::move(reservation.error()));
  Stream* stream = (*reservation)->find_stream((*wish)->stream);
  if (stream != nullptr && !(*wish)->force) {
    if (const auto error = loss_of({stream})) return fail(*error);
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
  auto stream = find_stream((*wish)->reservation, (*wish)->stream);
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
    (*stream)->what_may_go_changed();
  }
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::set_retention(const protocol::Message& message) {
  auto wish = unpacked<wire::RetentionSet>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream((*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  auto retention = parse_retention((*wish)->retention);
  if (!retention) return fail(std::move(retention.error()));
  journal::RetentionSetT set;
  set.retention = to_string(*retention);
  if (auto recorded = (*stream)->record(storage::RecordType::retention_set, std::move(set)); !recorded) return recorded;
  (*stream)->what_may_go_changed();
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::mark_staged(const protocol::Message& message) {
  auto wish = unpacked<wire::StagedMark>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream((*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  if (auto marked = (*stream)->mark_staged((*wish)->epoch, (*wish)->steps, (*wish)->receipt); !marked) return marked;
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::set_precious(const protocol::Message& message) {
  auto wish = unpacked<wire::PreciousSet>(message);
  if (!wish) return fail(std::move(wish.error()));
  auto stream = find_stream((*wish)->reservation, (*wish)->stream);
  if (!stream) return fail(std::move(stream.error()));
  journal::PreciousSetT set;
  set.precious = (*wish)->precious;
  for (std::uint64_t step : (*wish)->steps) {
    if ((*stream)->state().steps.contains(step)) {
      set.steps.push_back(step);
    } else if (set.precious || step >= (*stream)->state().next_step) {
      // One that need not be kept any more may have gone by this very wish, whose answer was lost.
      return fail(ErrorCode::not_found, "no such step is kept",
                  fmt::format("stream {}, step {}", (*stream)->path(), step));
    }
  }
  if (auto recorded = (*stream)->record(storage::RecordType::precious_set, std::move(set)); !recorded) return recorded;
  (*stream)->what_may_go_changed();
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::audit(const protocol::Message& message) {
  auto wish = unpacked<wire::AuditQuery>(message);
  if (!wish) return fail(std::move(wish.error()));
  if (!connection_.peer().administrator)
    return fail(ErrorCode::permission_denied, "only the server's own user may audit it");
  AdministeredServer& server = server_;
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
    server.stream_services().loop.post(
        [&server, answer, alive, damaged = std::move(damaged), findings = std::move(findings), request]() mutable {
          if (alive.expired()) return;
          for (Finding& finding : still_damaged(server, damaged)) findings.push_back(std::move(finding));
          answer(request, findings);
        });
  });
  return {};
}

}  // namespace forebay::server
