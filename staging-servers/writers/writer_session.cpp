// SPDX-License-Identifier: Apache-2.0
#include "writers/writer_session.h"

#include <forebay/address.h>

#include "daemon/server.h"
#include "streams/stream.h"

namespace forebay::server {
namespace {

/// The stream that a writer names, made if need be.
Result<Stream*> stream_for(Connection& connection, const std::string& reservation_name, const std::string& stream_name,
                           bool make) {
  auto reservation = connection.server().find_reservation(reservation_name, connection.peer());
  if (!reservation) return fail(std::move(reservation.error()));
  if (!is_valid_name(stream_name) || stream_name == "files") {
    return fail(ErrorCode::invalid_argument, "not a valid name for a stream: \"" + stream_name + "\"",
                "reservation " + reservation_name);
  }
  if (make) return (*reservation)->find_or_make_stream(stream_name);
  Stream* stream = (*reservation)->find_stream(stream_name);
  if (stream != nullptr) return stream;
  if (auto readable = (*reservation)->check_readable(stream_name); !readable) return fail(std::move(readable.error()));
  return fail(ErrorCode::not_found, "no such stream", "stream " + reservation_name + "/" + stream_name);
}

}  // namespace

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
                               {ErrorCode::protocol, "an option of the open has a value that does not exist", ""});
    return;
  }
  auto stream = stream_for(connection_, wish->reservation, wish->stream, true);
  if (!stream) {
    connection_.answer_failure(message.request, stream.error());
    return;
  }
  stream_ = *stream;
  stream_->group().attach(*this);
  stream_->group().open(*this, message.request, *wish);
}

void WriterSession::rejoin(const protocol::Message& message) {
  auto body = protocol::body_of<wire::WriterRejoin>(message);
  if (!body) {
    connection_.answer_failure(message.request, body.error());
    return;
  }
  const std::unique_ptr<wire::WriterRejoinT> wish((*body)->UnPack());
  auto stream = stream_for(connection_, wish->reservation, wish->stream, false);
  if (!stream) {
    connection_.answer_failure(message.request, stream.error());
    return;
  }
  stream_ = *stream;
  stream_->group().attach(*this);
  stream_->group().rejoin(*this, message.request, *wish);
}

void WriterSession::send_segments(const protocol::Message& message) {
  auto body = protocol::body_of<wire::SegmentsGet>(message);
  if (!body || (*body)->segments() == nullptr || !member) {
    connection_.answer_failure(message.request, {ErrorCode::protocol, "malformed request for segments", ""});
    return;
  }
  wire::SegmentsAnswerT answer;
  std::vector<Descriptor> descriptors;
  if (incarnation != stream_->group().incarnation() || !broken.empty()) {
    // Nobody gets to write where a newer group does.
    connection_.answer_failure(message.request, {broken.empty() ? ErrorCode::fenced : ErrorCode::group_broken,
                                                 "this rank's writer group is no more; restart it", ""});
    return;
  }
  SpaceMap& space = stream_->space().map();
  for (std::uint32_t segment : *(*body)->segments()) {
    const auto owner = segment < space.segment_count() ? space.owner(segment) : std::nullopt;
    if (!owner || !stream_->group().owns(*owner) || descriptors.size() == protocol::descriptors_max) continue;
    auto descriptor = stream_->space().segments().open(segment, true);
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
                            "this connection has asked to write before: each rank takes a connection of its own", ""});
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
  if (stream_ == nullptr) {
    connection_.answer_failure(message.request,
                               {ErrorCode::not_found, "the stream was removed, or not opened by this connection", ""});
    return;
  }
  WriterGroup& group = stream_->group();
  switch (message.type) {
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

void WriterSession::closed(const std::string& reason) {
  if (stream_ != nullptr) stream_->group().lost(*this, reason);
}

}  // namespace forebay::server
