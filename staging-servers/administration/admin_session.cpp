// SPDX-License-Identifier: Apache-2.0
#include "administration/admin_session.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "administration/admin_requests.h"
#include "administration/administered_server.h"
#include "administration/audit.h"
#include "administration/data_audit.h"
#include "base/plain_text.h"
#include "base/return_error.h"
#include "protocol/record_conversion.h"
#include "protocol/unpacked.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

constexpr std::size_t refusal_bytes_max = 600;
/// Of requests that may have to wait for another one about the same reservation.
constexpr std::size_t waiting_bytes_max = std::size_t{16} << 10;
/// Streams, consumers and the like of one answer, which others wait for: some milliseconds.
constexpr std::size_t items_told_at_once = 4096;

}  // namespace

std::optional<Error> loss_of(const std::vector<Stream*>& streams) {
  for (Stream* stream : streams) {
    const std::string where = "stream " + stream->path();
    if (stream->group().active())
      return Error{ErrorCode::refused, "the stream is being written; end the writers, or force it (--force)", where};
    const auto precious =
        std::ranges::count_if(stream->state().steps, [](const auto& entry) { return entry.second.precious(); });
    if (precious > 0) {
      return Error{
          ErrorCode::refused,
          fmt::format("precious steps that are not staged out yet: {}; stage them out (`forebay stage-out {} DEST "
                      "--every N`), or force it (--force)",
                      precious, stream->path()),
          where};
    }
  }
  return std::nullopt;
}

void AdminSession::handle(protocol::Message message) {
  if (auto answered = answer(message); !answered) connection_.answer_failure(message.request, answered.error());
}

template <class Table>
Result<void> AdminSession::on(const protocol::Message& message, Handler<Table> handler) {
  ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<Table>(message));
  return (this->*handler)(message, *asked);
}

template <class Table>
Result<void> AdminSession::on_stream(const protocol::Message& message, Rights needed, StreamHandler<Table> handler) {
  ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<Table>(message));
  ASSIGN_OR_RETURN(auto stream, find_stream(asked->reservation, asked->stream, needed));
  return (this->*handler)(message, *asked, *stream);
}

Result<void> AdminSession::answer(const protocol::Message& message) {
  using protocol::MessageType;
  const bool may_wait =
      message.type == MessageType::reservation_create || message.type == MessageType::reservation_destroy ||
      message.type == MessageType::reservation_change || message.type == MessageType::reservation_share;
  if (may_wait && message.body.size() > waiting_bytes_max)
    return fail(ErrorCode::protocol, "the request is longer than any of its kind");
  switch (message.type) {
    case MessageType::server_query:
      return server_query(message);
    case MessageType::reservation_create:
      return on<wire::ReservationCreate>(message, &AdminSession::create_reservation);
    case MessageType::reservation_destroy:
      return on<wire::ReservationDestroy>(message, &AdminSession::destroy_reservation);
    case MessageType::reservation_change:
      return on<wire::ReservationChange>(message, &AdminSession::change_reservation);
    case MessageType::reservation_share:
      return on<wire::ReservationShare>(message, &AdminSession::share_reservation);
    case MessageType::files_adopt:
      return on<wire::FilesAdopt>(message, &AdminSession::adopt_files);
    case MessageType::reservations_query:
      return on<wire::ReservationsQuery>(message, &AdminSession::query_reservations);
    case MessageType::streams_query:
      return on<wire::StreamsQuery>(message, &AdminSession::query_streams);
    case MessageType::steps_query:
      return on_stream<wire::StepsQuery>(message, Rights::read, &AdminSession::query_steps);
    case MessageType::stream_remove:
      return on<wire::StreamRemove>(message, &AdminSession::remove_stream);
    case MessageType::consumer_remove:
      return on_stream<wire::ConsumerRemove>(message, Rights::read, &AdminSession::remove_consumer);
    case MessageType::retention_set:
      return on_stream<wire::RetentionSet>(message, Rights::write, &AdminSession::set_retention);
    case MessageType::staged_mark:
      return on_stream<wire::StagedMark>(message, Rights::write, &AdminSession::mark_staged);
    case MessageType::precious_set:
      return on_stream<wire::PreciousSet>(message, Rights::write, &AdminSession::set_precious);
    case MessageType::steps_drop:
      return on_stream<wire::StepsDrop>(message, Rights::write, &AdminSession::drop_steps);
    case MessageType::writer_refused:
      return on<wire::WriterRefused>(message, &AdminSession::report_refused_writer);
    case MessageType::token_create:
      return on<wire::TokenCreate>(message, &AdminSession::create_token);
    case MessageType::token_revoke:
      return on<wire::TokenRevoke>(message, &AdminSession::revoke_token);
    case MessageType::home_query:
      return on<wire::HomeQuery>(message, &AdminSession::query_home);
    case MessageType::pool_directory:
      return on<wire::PoolDirectory>(message, &AdminSession::learn_pool);
    case MessageType::manager_call:
      return on<wire::ManagerCall>(message, &AdminSession::call_manager);
    case MessageType::audit_query:
      return on<wire::AuditQuery>(message, &AdminSession::audit);
    default:
      return fail(ErrorCode::protocol, std::string("unexpected message: ") + wire::EnumNameMessageType(message.type));
  }
}

Result<Stream*> AdminSession::find_stream(const std::string& reservation_name, const std::string& name, Rights needed) {
  ASSIGN_OR_RETURN(auto reservation, server_.reservations().find(reservation_name, connection_.peer(), needed));
  Stream* stream = reservation->find_stream(name);
  if (stream != nullptr) return stream;
  RETURN_IF_ERROR(reservation->check_readable(name));
  return fail(ErrorCode::not_found, "no such stream; `forebay streams " + reservation_name + "` lists what is there",
              "stream " + reservation_name + "/" + name);
}

Result<void> AdminSession::server_query(const protocol::Message& message) {
  connection_.answer(protocol::MessageType::server_answer, message.request,
                     protocol::to_wire<wire::ServerAnswerT>(server_.info()));
  return {};
}

Result<void> AdminSession::query_streams(const protocol::Message& message, const wire::StreamsQueryT& asked) {
  ASSIGN_OR_RETURN(auto reservation, server_.reservations().find(asked.reservation, connection_.peer(), Rights::read));
  wire::StreamsAnswerT answer;
  if (asked.stream.empty()) {
    const auto& streams = reservation->streams();
    std::size_t items = 0;
    for (auto next = streams.upper_bound(asked.after); next != streams.end() && !answer.more; ++next) {
      const StreamInfo info = next->second->info();
      items += 1 + info.consumers.size() + info.waits.size() + info.epochs.size() + info.lost.size();
      answer.streams.push_back(std::make_unique<wire::StreamT>(protocol::to_wire<wire::StreamT>(info)));
      answer.more = items >= items_told_at_once && std::next(next) != streams.end();
    }
  }
  if (asked.stream.empty() && asked.after.empty()) {
    for (const AwaitedStream& awaited : server_.stream_services().readers.awaited_streams(asked.reservation)) {
      answer.awaited.push_back(
          std::make_unique<wire::AwaitedStreamT>(protocol::to_wire<wire::AwaitedStreamT>(awaited)));
    }
  }
  if (!asked.stream.empty()) {
    ASSIGN_OR_RETURN(auto stream, find_stream(asked.reservation, asked.stream, Rights::read));
    answer.streams.push_back(std::make_unique<wire::StreamT>(protocol::to_wire<wire::StreamT>(stream->info())));
  }
  connection_.answer(protocol::MessageType::streams_answer, message.request, answer);
  return {};
}

Result<void> AdminSession::query_steps(const protocol::Message& message, const wire::StepsQueryT& asked,
                                       Stream& stream) {
  connection_.answer(protocol::MessageType::steps_answer, message.request,
                     stream.followers().list_steps(asked.first, asked.steps_max));
  return {};
}

Result<void> AdminSession::remove_stream(const protocol::Message& message, const wire::StreamRemoveT& asked) {
  ASSIGN_OR_RETURN(auto reservation, server_.reservations().find(asked.reservation, connection_.peer(), Rights::write));
  Stream* stream = reservation->find_stream(asked.stream);
  if (stream != nullptr && !asked.force) {
    if (const auto error = loss_of({stream})) return fail(*error);
  }
  if (reservation->unreadable(asked.stream) != nullptr && !asked.force) {
    return fail(ErrorCode::refused,
                "the stream cannot be opened, but its steps may be whole; repair the disk, or force it (--force)",
                "stream " + asked.reservation + "/" + asked.stream);
  }
  RETURN_IF_ERROR(reservation->remove_stream(asked.stream));
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::remove_consumer(const protocol::Message& message, const wire::ConsumerRemoveT& asked,
                                           Stream& stream) {
  const std::string name = consumer_of_reader(server_.rights_of(connection_.peer(), asked.reservation),
                                              connection_.peer().uid, asked.consumer);
  for (const ConsumerInfo& consumer : stream.followers().cursors().list()) {
    if (consumer.name == name && consumer.connected) {
      return fail(ErrorCode::busy, fmt::format("process {} reads as this consumer; end it first", consumer.holder_pid),
                  "consumer " + consumer.name);
    }
  }
  if (stream.state().cursors.contains(name)) {
    journal::CursorRemovedT removed;
    removed.consumer = name;
    RETURN_IF_ERROR(stream.record(storage::RecordType::cursor_removed, std::move(removed)));
    stream.what_may_go_changed();
  }
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::set_retention(const protocol::Message& message, const wire::RetentionSetT& asked,
                                         Stream& stream) {
  ASSIGN_OR_RETURN(auto retention, parse_retention(asked.retention));
  journal::RetentionSetT set;
  set.retention = to_string(retention);
  RETURN_IF_ERROR(stream.record(storage::RecordType::retention_set, std::move(set)));
  stream.what_may_go_changed();
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::mark_staged(const protocol::Message& message, const wire::StagedMarkT& asked,
                                       Stream& stream) {
  RETURN_IF_ERROR(stream.mark_staged(asked.epoch, asked.steps, asked.receipt));
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::set_precious(const protocol::Message& message, const wire::PreciousSetT& asked,
                                        Stream& stream) {
  journal::PreciousSetT set;
  set.precious = asked.precious;
  for (std::uint64_t step : asked.steps) {
    if (stream.state().steps.contains(step)) {
      set.steps.push_back(step);
    } else if (set.precious || step >= stream.state().next_step) {
      // One that need not be kept any more may have gone by this very request, whose answer was lost.
      return fail(ErrorCode::not_found, "no such step is kept", fmt::format("stream {}, step {}", stream.path(), step));
    }
  }
  RETURN_IF_ERROR(stream.record(storage::RecordType::precious_set, std::move(set)));
  stream.what_may_go_changed();
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::drop_steps(const protocol::Message& message, const wire::StepsDropT& asked, Stream& stream) {
  RETURN_IF_ERROR(stream.drop_steps(asked.steps));
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::report_refused_writer(const protocol::Message& message, const wire::WriterRefusedT& report) {
  auto reservation = server_.reservations().find(report.reservation, connection_.peer(), Rights::write);
  if (!reservation) return fail(std::move(reservation.error()));
  const std::string why = plain_text(report.text, refusal_bytes_max);
  if (Stream* const stream = (*reservation)->find_stream(report.stream)) {
    stream->group().report_refused(report, why);
  } else {
    server_.stream_services().readers.writer_refused(report.reservation + "/" + report.stream, report.run, why);
  }
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::create_token(const protocol::Message& message, const wire::TokenCreateT& asked) {
  ASSIGN_OR_RETURN(auto token, server_.create_token(connection_.peer(), asked));
  wire::TokenAnswerT answer;
  answer.token = std::move(token);
  connection_.answer(protocol::MessageType::token_answer, message.request, answer);
  return {};
}

Result<void> AdminSession::revoke_token(const protocol::Message& message, const wire::TokenRevokeT& asked) {
  RETURN_IF_ERROR(server_.revoke_token(asked.token));
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::query_home(const protocol::Message& message, const wire::HomeQueryT& query) {
  ASSIGN_OR_RETURN(const auto answer, server_.home(connection_.peer(), query));
  connection_.answer(protocol::MessageType::home_answer, message.request, answer);
  return {};
}

Result<void> AdminSession::learn_pool(const protocol::Message& message, const wire::PoolDirectoryT& directory) {
  if (!connection_.peer().administrator)
    return fail(ErrorCode::permission_denied, "only the pool's manager says where its reservations lie");
  RETURN_IF_ERROR(server_.learn(directory));
  connection_.answer_done(message.request);
  return {};
}

Result<void> AdminSession::call_manager(const protocol::Message& message, const wire::ManagerCallT& call) {
  return server_.call_manager(connection_.peer(), call, connection_.alive(),
                              [this, request = message.request](const Result<wire::ManagerAnswerT>& answer) {
                                if (answer) {
                                  connection_.answer(protocol::MessageType::manager_answer, request, *answer);
                                } else {
                                  connection_.answer_failure(request, answer.error());
                                }
                              });
}

Result<void> AdminSession::audit(const protocol::Message& message, const wire::AuditQueryT& asked) {
  if (!connection_.peer().administrator)
    return fail(ErrorCode::permission_denied, "only the server's own user may audit it");
  AdministeredServer& server = server_;
  const auto answer = [this, request = message.request,
                       alive = connection_.alive()](const std::vector<Finding>& findings) {
    if (alive.expired()) return;
    wire::AuditAnswerT found;
    for (const Finding& finding : few_of_each(findings))
      found.findings.push_back(std::make_unique<wire::FindingT>(protocol::to_wire<wire::FindingT>(finding)));
    connection_.answer(protocol::MessageType::audit_answer, request, found);
  };
  std::vector<Finding> findings = audit_accounting(server);
  auto files = files_to_measure(server);
  auto steps = asked.read_data ? steps_to_read(server) : std::vector<StepToRead>();
  if (files.empty() && steps.empty()) {
    answer(findings);
    return {};
  }
  server.side_worker().add([&server, answer, alive = connection_.alive(), files = std::move(files),
                            steps = std::move(steps), findings = std::move(findings)]() mutable {
    for (Finding& finding : audit_files(server, files)) findings.push_back(std::move(finding));
    server.stream_services().loop.post(
        [&server, answer, alive, steps = std::move(steps), findings = std::move(findings)]() mutable {
          DataAudit::begin(server, std::move(steps), alive, [answer, findings](std::vector<Finding> found) {
            std::vector<Finding> all = findings;
            std::ranges::move(found, std::back_inserter(all));
            answer(all);
          });
        });
  });
  return {};
}

}  // namespace forebay::server
