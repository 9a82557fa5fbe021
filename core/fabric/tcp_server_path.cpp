// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp_server_path.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fail_point.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::fabric {
namespace {

// A client that takes nothing for so long loses its path.
constexpr long send_seconds_max = 60;

tl::unexpected<Error> ended(const std::string& why) {
  return fail(ErrorCode::disconnected, why);
}

}  // namespace

TcpServerPath::TcpServerPath(Descriptor socket, std::shared_ptr<WriteWindow> window)
    : socket_(std::move(socket)), window_(std::move(window)) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) & ~O_NONBLOCK);
  const timeval longest{send_seconds_max, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
}

bool TcpServerPath::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= transfers_max) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

bool TcpServerPath::send(Transfer transfer) {
  return add({std::move(transfer), std::nullopt});
}

bool TcpServerPath::refuse(std::uint64_t ticket, const Error& error) {
  Job job;
  job.transfer.ticket = ticket;
  job.refusal = error;
  return add(std::move(job));
}

void TcpServerPath::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.notify_one();
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
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
      if (closed_) return ended("closed");
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    RETURN_IF_ERROR(job.refusal ? send_failure(job.transfer.ticket, *job.refusal) : send_transfer(job.transfer));
  }
}

Result<void> TcpServerPath::send_transfer(const Transfer& transfer) {
  for (const Transfer::Piece& piece : transfer.pieces) {
    for (std::uint64_t done = 0; done < piece.length;) {
      const std::span<std::byte> chunk(buffer_.get(), std::min(frame_bytes_max, piece.length - done));
      if (auto read = piece.file->read_at(piece.offset + done, chunk); !read)
        return send_failure(transfer.ticket, read.error());
      FrameHeader header;
      header.kind = FrameKind::data;
      header.ticket = transfer.ticket;
      header.length = chunk.size();
      fail_point("server.data.before_send");
      RETURN_IF_ERROR(send_frame(header, chunk));
      done += chunk.size();
    }
  }
  return {};
}

Result<void> TcpServerPath::send_failure(std::uint64_t ticket, const Error& error) {
  const std::string text = error.message().substr(0, frame_text_bytes_max);
  FrameHeader header;
  header.kind = FrameKind::failed;
  header.ticket = ticket;
  header.segment = static_cast<std::uint32_t>(error.code);
  header.length = text.size();
  return send_frame(header, std::as_bytes(std::span(text)));
}

Result<void> TcpServerPath::send_frame(const FrameHeader& header, std::span<const std::byte> bytes) {
  std::span<const std::byte> first = std::as_bytes(std::span(&header, 1));
  while (!first.empty() || !bytes.empty()) {
    iovec parts[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                      {const_cast<std::byte*>(bytes.data()), bytes.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ended("the client takes nothing");
    if (count < 0) return ended(system_error(errno, "cannot send to the client").value().what);
    const std::size_t of_first = std::min(static_cast<std::size_t>(count), first.size());
    first = first.subspan(of_first);
    bytes = bytes.subspan(static_cast<std::size_t>(count) - of_first);
  }
  return {};
}

Result<void> TcpServerPath::receive_exactly(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t count = ::recv(socket_.get(), out.data(), out.size(), MSG_WAITALL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ended(system_error(errno, "cannot receive from the client").value().what);
    if (count == 0) return ended("the client closed it");
    out = out.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> TcpServerPath::take_writes() {
  std::optional<Error> failed;  // the first write that failed since the last finish
  while (true) {
    FrameHeader header;
    RETURN_IF_ERROR(receive_exactly(std::as_writable_bytes(std::span(&header, 1))));
    RETURN_IF_ERROR(check_client_frame(header));
    if (header.kind == FrameKind::finish) {
      if (failed) {
        RETURN_IF_ERROR(send_failure(header.ticket, *failed));
        failed.reset();
        continue;
      }
      FrameHeader answer;
      answer.kind = FrameKind::written;
      answer.ticket = header.ticket;
      RETURN_IF_ERROR(send_frame(answer, {}));
      continue;
    }
    const std::span<std::byte> bytes(buffer_.get(), header.length);
    RETURN_IF_ERROR(receive_exactly(bytes));
    if (failed) continue;
    ASSIGN_OR_RETURN(const auto file, window_->begin(header.segment, header.offset, header.length));
    fail_point("server.data.before_write");
    auto written = file->write_at(header.offset, bytes);
    window_->end();
    if (!written) failed = written.error();
  }
}

}  // namespace forebay::fabric
