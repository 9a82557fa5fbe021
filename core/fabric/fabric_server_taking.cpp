// SPDX-License-Identifier: Apache-2.0
// Blocks from the client's memory into the space that it was granted, in the order in which the client named them.
#include <algorithm>

#include "base/fail_point.h"
#include "base/return_error.h"
#include "fabric/fabric_server_path.h"

namespace forebay::fabric {

Result<void> FabricServerPath::take_request(const FrameHeader& header) {
  Taking taking;
  taking.header = header;
  if (header.kind == FrameKind::take) {
    RETURN_IF_ERROR(frames_.receive(std::as_writable_bytes(std::span(&taking.place, 1))));
  } else if (header.kind == FrameKind::write) {
    taking.buffer = free_buffer();  // there is one, or no frame is taken
    used_[*taking.buffer] = true;
    RETURN_IF_ERROR(frames_.receive(buffer(*taking.buffer).first(header.length)));
    taking.stage = Stage::done;
  } else if (header.kind == FrameKind::finish) {
    taking.stage = Stage::done;
  } else {
    return fail(ErrorCode::protocol, "the client reads on a path for writing");
  }
  takings_.push_back(taking);
  return {};
}

Result<bool> FabricServerPath::take_some() {
  for (Taking& taking : takings_) {
    if (taking.stage != Stage::waiting) continue;
    if (!taking.buffer) {
      taking.buffer = free_buffer();
      if (!taking.buffer) break;
      used_[*taking.buffer] = true;
    }
    ASSIGN_OR_RETURN(const bool started,
                     endpoint_->read(*taking.buffer, buffer(*taking.buffer).first(taking.header.length), taking.place));
    if (!started) {
      refused_to_start_ = true;
      break;
    }
    taking.stage = Stage::started;
  }
  if (takings_.empty() || takings_.front().stage != Stage::done) return false;
  // One at a time: what has arrived meanwhile makes buffers free.
  const Taking taking = takings_.front();
  takings_.pop_front();
  if (taking.header.kind == FrameKind::finish) {
    RETURN_IF_ERROR(write_failure_ ? frames_.send_failure(taking.header.ticket, *write_failure_)
                                   : frames_.send(FrameKind::written, taking.header.ticket));
    write_failure_.reset();
    return true;
  }
  // The client's memory is its own again before the disk has the bytes.
  if (taking.header.kind == FrameKind::take) RETURN_IF_ERROR(frames_.send(FrameKind::taken, taking.header.ticket));
  auto written = write_failure_ ? Result<void>() : write(taking);
  used_[*taking.buffer] = false;
  const bool ends =
      !written && (written.error().code == ErrorCode::protocol || written.error().code == ErrorCode::disconnected);
  if (ends) return fail(std::move(written.error()));
  if (!written) write_failure_ = written.error();
  return true;
}

Result<void> FabricServerPath::write(const Taking& taking) {
  const FrameHeader& header = taking.header;
  ASSIGN_OR_RETURN(const auto file, window_->begin(number_, header.segment, header.offset, header.length));
  fail_point("server.data.before_write");
  auto written = file->write_at(header.offset, buffer(*taking.buffer).first(header.length));
  window_->end();
  return written;
}

}  // namespace forebay::fabric
