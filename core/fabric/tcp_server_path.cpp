// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp_server_path.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <optional>
#include <utility>

#include "base/bounds.h"
#include "base/fail_point.h"
#include "base/return_error.h"

namespace forebay::fabric {
namespace {

// For less a copy costs less than a call more.
constexpr std::uint64_t sent_from_cache_bytes_least = std::uint64_t{64} << 10;
// Set once a file could not be sent from the cache. That ends a path in the middle of a frame, so that its client comes
// back without knowing why. A copy finds the same failure before the frame begins, and tells it.
std::atomic<bool> copies_always = false;

}  // namespace

TcpServerPath::TcpServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window, std::int64_t silence_ms)
    : frames_(std::move(socket), silence_ms), window_(std::move(window)), number_(window_ ? window_->enter() : 0) {}

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
  // Unlike send(), sendfile() cannot be told to raise no signal when the client is gone.
  sigset_t broken_pipe;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(frame_bytes_max);
  auto done = window_ ? take_writes() : send_jobs();
  close();  // The client notices.
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
      const std::uint64_t bytes = std::min<std::uint64_t>(frame_bytes_max, piece.length - done);
      ASSIGN_OR_RETURN(const bool sent, send_chunk(transfer.ticket, piece, done, bytes));
      if (!sent) return {};
      done += bytes;
    }
  }
  return {};
}

Result<bool> TcpServerPath::send_chunk(std::uint64_t ticket, const Transfer::Piece& piece, std::uint64_t done,
                                       std::uint64_t bytes) {
  FrameHeader header;
  header.kind = FrameKind::data;
  header.ticket = ticket;
  header.length = bytes;
  if (bytes >= sent_from_cache_bytes_least && piece.file->descriptor() >= 0 && !copies_always) {
    // A writer may have truncated its segment: an error of this step, and not one of sending.
    const auto size = piece.file->size();
    if (size && !range_within(piece.offset + done, bytes, *size)) {
      RETURN_IF_ERROR(frames_.send_failure(
          ticket, {ErrorCode::corrupt, "a segment ends before the step's bytes; a writer has truncated it", ""}));
      return false;
    }
    fail_point("server.data.before_send");
    auto sent = frames_.send_file(header, piece.file->descriptor(), piece.offset + done);
    if (!sent && sent.error().code == ErrorCode::io_error) copies_always = true;
    RETURN_IF_ERROR(sent);
    return true;
  }
  const std::span<std::byte> chunk(buffer_.get(), bytes);
  if (auto read = piece.file->read_at(piece.offset + done, chunk); !read) {
    RETURN_IF_ERROR(frames_.send_failure(ticket, read.error()));
    return false;
  }
  fail_point("server.data.before_send");
  RETURN_IF_ERROR(frames_.send(header, chunk));
  return true;
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
    ASSIGN_OR_RETURN(const auto file, window_->begin(number_, header.segment, header.offset, header.length));
    fail_point("server.data.before_write");
    auto written = file->write_at(header.offset, bytes);
    window_->end();
    if (!written) failed = written.error();
  }
}

}  // namespace forebay::fabric
