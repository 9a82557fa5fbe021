// SPDX-License-Identifier: Apache-2.0
#include "writers/writer_session.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/plain_text.h"
#include "base/return_error.h"
#include "protocol/unpacked.h"
#include "space/reservation_space.h"
#include "storage/record_check.h"
#include "writers/writer_group.h"

namespace forebay::server {
namespace {

constexpr std::size_t failure_bytes_max = 200;

std::string describe(const wire::WriterLeave& message) {
  if (message.reason() != wire::LeaveReason::failed) return "it left without closing the stream";
  const std::string step = message.step() ? fmt::format(" in step {}", *message.step()) : std::string();
  const std::string what = plain_text(protocol::text_of(message.text()), failure_bytes_max);
  return "an exception ended it" + step + (what.empty() ? "" : ": ") + what;
}

}  // namespace

WriterSession::WriterSession(Connection& connection, StreamsToWrite& streams)
    : connection_(connection), streams_(streams) {
  // A writer's lease ends with the process although a forked child keeps the socket.
  connection_.end_with_process();
}

Result<void> WriterSession::open(const protocol::Message& message) {
  ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::WriterOpen>(message));
  const bool sane = asked->mode >= 1 && asked->mode <= 2 && asked->when_full >= 1 && asked->when_full <= 3 &&
                    asked->durability >= 1 && asked->durability <= 2 && asked->distribution <= 3 &&
                    asked->process.size() <= storage::process_bytes_max &&
                    asked->ranks_source.size() <= storage::ranks_source_bytes_max &&
                    (asked->process.empty() || connection_.is_remote());
  if (!sane) return fail(ErrorCode::protocol, "an option of the open has an unknown value");
  RETURN_IF_ERROR(join(asked->reservation, asked->stream, true));
  asked_bytes_ = message.body.size();
  place_near(asked->near);
  group_->open(*this, message.request, *asked);
  return {};
}

Result<void> WriterSession::rejoin(const protocol::Message& message) {
  ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::WriterRejoin>(message));
  RETURN_IF_ERROR(join(asked->reservation, asked->stream, false));
  place_near(asked->near);
  group_->rejoin(*this, message.request, *asked);
  return {};
}

Result<void> WriterSession::tell_missing(const protocol::Message& message) {
  ASSIGN_OR_RETURN(const auto asked, protocol::unpacked<wire::RanksMissing>(message));
  wire::RanksMissingAnswerT answer;
  // A stream that is not there has no group.
  if (const auto group = streams_.find_to_write(connection_.peer(), asked->reservation, asked->stream, false)) {
    answer.processes = (*group)->missing_processes();
  } else if (group.error().code != ErrorCode::not_found) {
    return fail(group.error());
  }
  connection_.answer(protocol::MessageType::ranks_missing_answer, message.request, answer);
  return {};
}

Result<void> WriterSession::join(const std::string& reservation, const std::string& stream, bool make) {
  ASSIGN_OR_RETURN(group_, streams_.find_to_write(connection_.peer(), reservation, stream, make));
  reservation_ = reservation;
  group_->attach(*this);
  return {};
}

void WriterSession::place_near(const std::string& root) {
  const Segments& segments = group_->space().segments();
  if (segments.others() == nullptr) return;
  near = connection_.is_remote() ? segments.others()->member_of_root(root) : std::optional<std::uint16_t>(0);
}

std::uint64_t WriterSession::access_generation() const {
  return streams_.rights_of(connection_.peer(), reservation_).generation;
}

Result<void> WriterSession::introduce_to_member(const protocol::Message& message) {
  ASSIGN_OR_RETURN(const auto body, protocol::body_of<wire::MemberQuery>(message));
  OtherMembers* const others = group_->space().segments().others();
  if (others == nullptr) return fail(ErrorCode::protocol, "the reservation lies on one server");
  ASSIGN_OR_RETURN(const auto answer,
                   others->introduce(body->member(), connection_.peer().uid, access_generation(), true,
                                     connection_.peer().remote ? connection_.peer().remote->expires_ns : 0));
  connection_.answer(protocol::MessageType::member_answer, message.request, answer);
  return {};
}

Result<void> WriterSession::send_segments(const protocol::Message& message) {
  auto body = protocol::body_of<wire::SegmentsGet>(message);
  const bool others_only = connection_.is_remote();
  if (!body || (*body)->segments() == nullptr || !member)
    return fail(ErrorCode::protocol, "malformed request for segments");
  wire::SegmentsAnswerT answer;
  std::vector<Descriptor> descriptors;
  if (incarnation != group_->incarnation() || !broken.empty()) {
    // Nobody gets to write where a newer group does.
    return fail(broken.empty() ? ErrorCode::fenced : ErrorCode::group_broken,
                "this rank's writer group has ended; restart it");
  }
  SpaceMap& space = group_->space().map();
  std::set<std::uint32_t> elsewhere;
  for (std::uint32_t segment : *(*body)->segments()) {
    const auto owner = segment < space.segment_count() ? space.owner(segment) : std::nullopt;
    if (!owner || !group_->owns(*owner)) continue;
    if (!group_->space().segments().is_own(segment)) {
      elsewhere.insert(segment);
      continue;
    }
    if (others_only || descriptors.size() == protocol::descriptors_max) continue;
    ASSIGN_OR_RETURN(auto descriptor, group_->space().open_to_write(segment, connection_.peer().uid));
    connection_.segments_sent.insert(segment);
    answer.segments.push_back(segment);
    descriptors.push_back(std::move(descriptor));
  }
  group_->permit(*this, elsewhere, answer.permits);
  connection_.answer(protocol::MessageType::segments_answer, message.request, answer, std::move(descriptors));
  return {};
}

void WriterSession::answer_if_failed(const protocol::Message& message, const Result<void>& result) {
  if (!result) connection_.answer_failure(message.request, result.error());
}

void WriterSession::handle(protocol::Message message) {
  using protocol::MessageType;
  if (message.type == MessageType::writer_open || message.type == MessageType::writer_rejoin) {
    if (has_asked_) {
      connection_.answer_failure(
          message.request, {ErrorCode::protocol,
                            "this connection has already asked to write: each rank needs a connection of its own", ""});
      connection_.close("asked to write twice");
      return;
    }
    has_asked_ = true;
    answer_if_failed(message, message.type == MessageType::writer_open ? open(message) : rejoin(message));
    return;
  }
  if (message.type == MessageType::ranks_missing) {
    answer_if_failed(message, tell_missing(message));
    return;
  }
  if (group_ == nullptr) {
    connection_.answer_failure(message.request,
                               {ErrorCode::not_found, "the stream was removed, or not opened by this connection", ""});
    return;
  }
  WriterGroup& group = *group_;
  switch (message.type) {
    case MessageType::step_begin:
      if (auto body = protocol::body_of<wire::StepBegin>(message)) {
        group.begin_step(*this, message.request, **body);
        return;
      }
      break;
    case MessageType::space_request:
      if (const auto asked = protocol::unpacked<wire::SpaceRequest>(message)) {
        group.request_space(*this, message.request, **asked);
        return;
      }
      break;
    case MessageType::part:
      if (const auto part = protocol::unpacked<wire::Part>(message)) {
        group.part(*this, message.request, **part);
        return;
      }
      break;
    case MessageType::step_abort:
      if (auto body = protocol::body_of<wire::StepAbort>(message)) {
        group.abort_step(*this, message.request, **body);
        return;
      }
      break;
    case MessageType::writer_close:
      group.close(*this, message.request);
      // Its segments may go to others at once.
      if (has_closed) connection_.use_data_path(nullptr);
      return;
    case MessageType::writer_leave:
      if (auto body = protocol::body_of<wire::WriterLeave>(message)) {
        leave(**body);
        return;
      }
      break;
    case MessageType::segments_get:
      answer_if_failed(message, send_segments(message));
      return;
    case MessageType::member_query:
      answer_if_failed(message, introduce_to_member(message));
      return;
    default:
      break;
  }
  connection_.answer_failure(
      message.request,
      {ErrorCode::protocol,
       std::string("unexpected or malformed message from a writer: ") + wire::EnumNameMessageType(message.type), ""});
  connection_.close("protocol error");
}

void WriterSession::rights_changed(const std::string& reservation) {
  if (group_ == nullptr || reservation != reservation_) return;
  if (streams_.rights_of(connection_.peer(), reservation).allow(Rights::write)) return;
  // As for any rank that is lost; its client comes back and is refused.
  connection_.close("its right to write was taken away");
}

void WriterSession::leave(const wire::WriterLeave& message) {
  connection_.use_data_path(nullptr);
  std::exchange(group_, nullptr)->lost(*this, describe(message));
}

std::string WriterSession::describe_end(const std::string& reason) const {
  if (!connection_.ended_by_peer()) return reason;
  if (connection_.is_remote()) return "its process was killed or crashed, or its node cannot be reached";
  return "its process was killed, crashed or ran out of memory";
}

void WriterSession::closed(const std::string& reason) {
  if (group_ != nullptr) group_->lost(*this, describe_end(reason));
}

StreamWait writer_wait(const WriterSession& session, StreamWait::Kind kind, std::string wanted, std::int64_t since_ns) {
  const Peer& peer = session.connection().peer();
  return {kind, fmt::format("rank {}, {}", session.rank, peer.describe()),
          peer.remote ? 0 : static_cast<std::uint32_t>(peer.pid), std::move(wanted), since_ns};
}

}  // namespace forebay::server
