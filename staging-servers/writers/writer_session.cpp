// SPDX-License-Identifier: Apache-2.0
#include "writers/writer_session.h"

#include "space/reservation_space.h"
#include "writers/writer_group.h"

namespace forebay::server {

WriterSession::WriterSession(Connection& connection, StreamsToWrite& streams)
    : connection_(connection), streams_(streams) {
  // A writer's lease ends with the process although a forked child keeps the socket.
  connection_.end_with_process();
}

void WriterSession::open(const protocol::Message& message) {
  auto body = protocol::body_of<wire::WriterOpen>(message);
  if (!body) {
    connection_.answer_failure(message.request, body.error());
    return;
  }
  const std::unique_ptr<wire::WriterOpenT> wish((*body)->UnPack());
  const bool sane = wish->mode >= 1 && wish->mode <= 2 && wish->when_full >= 1 && wish->when_full <= 3 &&
                    wish->durability >= 1 && wish->durability <= 2 && wish->distribution <= 3;
  if (!sane) {
    connection_.answer_failure(message.request,
                               {ErrorCode::protocol, "an option of the open has an unknown value", ""});
    return;
  }
  auto group = streams_.find_to_write(connection_.peer(), wish->reservation, wish->stream, true);
  if (!group) {
    connection_.answer_failure(message.request, group.error());
    return;
  }
  group_ = *group;
  reservation_ = wish->reservation;
  group_->attach(*this);
  group_->open(*this, message.request, *wish);
}

void WriterSession::rejoin(const protocol::Message& message) {
  auto body = protocol::body_of<wire::WriterRejoin>(message);
  if (!body) {
    connection_.answer_failure(message.request, body.error());
    return;
  }
  const std::unique_ptr<wire::WriterRejoinT> wish((*body)->UnPack());
  auto group = streams_.find_to_write(connection_.peer(), wish->reservation, wish->stream, false);
  if (!group) {
    connection_.answer_failure(message.request, group.error());
    return;
  }
  group_ = *group;
  reservation_ = wish->reservation;
  group_->attach(*this);
  group_->rejoin(*this, message.request, *wish);
}

void WriterSession::send_segments(const protocol::Message& message) {
  auto body = protocol::body_of<wire::SegmentsGet>(message);
  if (!body || (*body)->segments() == nullptr || !member || connection_.is_remote()) {
    connection_.answer_failure(message.request, {ErrorCode::protocol, "malformed request for segments", ""});
    return;
  }
  wire::SegmentsAnswerT answer;
  std::vector<Descriptor> descriptors;
  if (incarnation != group_->incarnation() || !broken.empty()) {
    // Nobody gets to write where a newer group does.
    connection_.answer_failure(message.request, {broken.empty() ? ErrorCode::fenced : ErrorCode::group_broken,
                                                 "this rank's writer group has ended; restart it", ""});
    return;
  }
  SpaceMap& space = group_->space().map();
  for (std::uint32_t segment : *(*body)->segments()) {
    const auto owner = segment < space.segment_count() ? space.owner(segment) : std::nullopt;
    if (!owner || !group_->owns(*owner) || descriptors.size() == protocol::descriptors_max) continue;
    auto descriptor = group_->space().segments().open(segment, true);
    if (!descriptor) {
      connection_.answer_failure(message.request, descriptor.error());
      return;
    }
    connection_.segments_sent.insert(segment);
    answer.segments.push_back(segment);
    descriptors.push_back(std::move(*descriptor));
  }
  connection_.answer(protocol::MessageType::segments_answer, message.request, answer, std::move(descriptors));
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
    if (message.type == MessageType::writer_open) {
      open(message);
    } else {
      rejoin(message);
    }
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
      if (auto body = protocol::body_of<wire::SpaceRequest>(message)) {
        group.request_space(*this, message.request, (*body)->step(), (*body)->bytes(), (*body)->ahead_bytes());
        return;
      }
      break;
    case MessageType::part:
      if (auto body = protocol::body_of<wire::Part>(message)) {
        const std::unique_ptr<wire::PartT> part((*body)->UnPack());
        group.part(*this, message.request, *part);
        return;
      }
      break;
    case MessageType::step_abort:
      if (auto body = protocol::body_of<wire::StepAbort>(message)) {
        group.abort_step(*this, message.request, (*body)->step());
        return;
      }
      break;
    case MessageType::writer_close:
      group.close(*this, message.request);
      // Its segments may go to others at once.
      if (has_closed) connection_.use_data_path(nullptr);
      return;
    case MessageType::segments_get:
      send_segments(message);
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

void WriterSession::closed(const std::string& reason) {
  if (group_ != nullptr) group_->lost(*this, reason);
}

}  // namespace forebay::server
