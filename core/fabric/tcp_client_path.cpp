// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp_client_path.h"

#include <algorithm>

#include "base/return_error.h"

namespace forebay::fabric {

Result<void> TcpClientPath::receive(std::uint64_t ticket, Incoming incoming, const KeepWaiting& keep_waiting) {
  WholeOrBroken guard(broken_);
  ASSIGN_OR_RETURN(auto answer, frames_.receive_data(ticket, incoming, keep_waiting));
  guard.whole();
  return answer;
}

Result<void> TcpClientPath::write(std::uint32_t segment, std::uint64_t offset, std::span<const std::byte> bytes,
                                  const KeepWaiting& keep_waiting) {
  WholeOrBroken guard(broken_);
  while (!bytes.empty()) {
    FrameHeader header;
    header.kind = FrameKind::write;
    header.segment = segment;
    header.offset = offset;
    header.length = std::min<std::uint64_t>(bytes.size(), frame_bytes_max);
    RETURN_IF_ERROR(frames_.send(header, bytes.first(header.length), keep_waiting));
    offset += header.length;
    bytes = bytes.subspan(header.length);
  }
  guard.whole();
  return {};
}

Result<std::size_t> TcpClientPath::write_some(std::uint32_t segment, std::uint64_t offset,
                                              std::span<const std::byte> bytes, const KeepWaiting&) {
  WholeOrBroken guard(broken_);
  std::size_t sent = 0;
  while (!bytes.empty()) {
    if (!frame_) {
      frame_ = MovingFrame();
      frame_->header.kind = FrameKind::write;
      frame_->header.segment = segment;
      frame_->header.offset = offset + sent;
      frame_->header.length = std::min<std::uint64_t>(bytes.size(), frame_bytes_max);
      frame_->bytes_left = frame_->header.length;
    }
    const auto header = frame_->rest_of_header();
    ASSIGN_OR_RETURN(const std::size_t moved, frames_.send_some(header, bytes.first(frame_->bytes_left)));
    if (moved == 0) return sent;  // in the middle of a frame: broken unless it goes on
    const std::size_t of_header = std::min(moved, header.size());
    frame_->header_bytes += of_header;
    frame_->bytes_left -= moved - of_header;
    bytes = bytes.subspan(moved - of_header);
    sent += moved - of_header;
    if (frame_->bytes_left == 0) frame_.reset();
  }
  guard.whole();
  return sent;
}

Result<bool> TcpClientPath::receive_some(std::uint64_t ticket, Incoming& incoming, const KeepWaiting& keep_waiting) {
  WholeOrBroken guard(broken_);
  while (!incoming.empty()) {
    if (!frame_) frame_ = MovingFrame();
    if (!frame_->rest_of_header().empty()) {
      ASSIGN_OR_RETURN(const bool all, frames_.receive_some_header(*frame_));
      if (!all) return false;
      ASSIGN_OR_RETURN(auto failure, frames_.check_data(frame_->header, ticket, incoming, keep_waiting));
      if (failure) {
        frame_.reset();
        guard.whole();
        return fail(std::move(*failure));
      }
      frame_->bytes_left = frame_->header.length;
    }
    while (frame_->bytes_left > 0) {
      ASSIGN_OR_RETURN(const std::size_t moved, frames_.receive_some(incoming.next(frame_->bytes_left)));
      if (moved == 0) return false;
      incoming.arrived(moved);
      frame_->bytes_left -= moved;
    }
    frame_.reset();
  }
  guard.whole();
  return true;
}

Result<void> TcpClientPath::finish_writes(const KeepWaiting& keep_waiting) {
  WholeOrBroken guard(broken_);
  FrameHeader request;
  request.kind = FrameKind::finish;
  request.ticket = ++finishes_;
  RETURN_IF_ERROR(frames_.send(request, {}, keep_waiting));
  ASSIGN_OR_RETURN(const auto header, frames_.receive_header(keep_waiting));
  RETURN_IF_ERROR(check_server_frame(header));
  if (header.ticket != request.ticket)
    return fail(ErrorCode::protocol, "the data path brought the answer to another request");
  if (header.kind == FrameKind::failed) {
    ASSIGN_OR_RETURN(auto failure, frames_.receive_failure(header, keep_waiting));
    guard.whole();
    return fail(std::move(failure));
  }
  if (header.kind != FrameKind::written)
    return fail(ErrorCode::protocol, "the data path brought something else than the end of the writes");
  guard.whole();
  return {};
}

}  // namespace forebay::fabric
