// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp_server_path.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/fail_point.h"
#include "base/return_error.h"

namespace forebay::fabric {

TcpServerPath::TcpServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window)
    : frames_(std::move(socket)), window_(std::move(window)) {}

bool TcpServerPath::send(Transfer transfer) {
  return jobs_.add({std::move(transfer), std::nullopt});
}

bool TcpServerPath::refuse(std::uint64_t ticket, const Error& error) {
  TransferQueue::Job job;
  job.transfer.ticket = ticket;
  job.refusal = error;
  return jobs_.add(std::move(job));
}

void TcpServerPath::close() noexcept {
  frames_.shut_down();
  jobs_.close();
}

Result<void> TcpServerPath::run() {
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(frame_bytes_max);
  auto done = window_ ? take_writes() : send_jobs();
  close();  // The client notices.
  // Others may have the segments when nobody can write to them any more.
  if (window_) window_->drop();
  return done;
}

Result<void> TcpServerPath::send_jobs() {
  while (const auto job = jobs_.wait()) {
    RETURN_IF_ERROR(job->refusal ? frames_.send_failure(job->transfer.ticket, *job->refusal)
                                 : send_transfer(job->transfer));
  }
  return path_ended("closed");
}

Result<void> TcpServerPath::send_transfer(const Transfer& transfer) {
  for (const Transfer::Piece& piece : transfer.pieces) {
    for (std::uint64_t done = 0; done < piece.length;) {
      const std::span<std::byte> chunk(buffer_.get(), std::min(frame_bytes_max, piece.length - done));
      if (auto read = piece.file->read_at(piece.offset + done, chunk); !read)
        return frames_.send_failure(transfer.ticket, read.error());
      FrameHeader header;
      header.kind = FrameKind::data;
      header.ticket = transfer.ticket;
      header.length = chunk.size();
      fail_point("server.data.before_send");
      RETURN_IF_ERROR(frames_.send(header, chunk));
      done += chunk.size();
    }
  }
  return {};
}

Result<void> TcpServerPath::take_writes() {
  std::optional<Error> failed;  // the first write that failed since the last finish
  while (true) {
    FrameHeader header;
    RETURN_IF_ERROR(frames_.receive(std::as_writable_bytes(std::span(&header, 1))));
    RETURN_IF_ERROR(check_client_frame(header));
    if (header.kind == FrameKind::finish) {
      RETURN_IF_ERROR(failed ? frames_.send_failure(header.ticket, *failed)
                             : frames_.send(FrameKind::written, header.ticket));
      failed.reset();
      continue;
    }
    const std::span<std::byte> bytes(buffer_.get(), header.length);
    RETURN_IF_ERROR(frames_.receive(bytes));
    if (failed) continue;
    ASSIGN_OR_RETURN(const auto file, window_->begin(header.segment, header.offset, header.length));
    fail_point("server.data.before_write");
    auto written = file->write_at(header.offset, bytes);
    window_->end();
    if (!written) failed = written.error();
  }
}

}  // namespace forebay::fabric
