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
