// SPDX-License-Identifier: Apache-2.0
#include "fabric/server_frames.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::fabric {

tl::unexpected<Error> path_ended(std::string why) {
  return fail(ErrorCode::disconnected, std::move(why));
}

ServerFrames::ServerFrames(Descriptor socket, std::int64_t silence_ms) : socket_(std::move(socket)) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) & ~O_NONBLOCK);
  const timeval longest{silence_ms / 1000, silence_ms % 1000 * 1000};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
}

void ServerFrames::shut_down() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

Result<void> ServerFrames::send_failure(std::uint64_t ticket, const Error& error) {
  const std::string text = error.message().substr(0, frame_text_bytes_max);
  FrameHeader header;
  header.kind = FrameKind::failed;
  header.ticket = ticket;
  header.segment = static_cast<std::uint32_t>(error.code);
  header.length = text.size();
  return send(header, std::as_bytes(std::span(text)));
}

Result<void> ServerFrames::send(FrameKind kind, std::uint64_t ticket, std::uint64_t length) {
  FrameHeader header;
  header.kind = kind;
  header.ticket = ticket;
  header.length = length;
  return send(header, {});
}

Result<void> ServerFrames::send(const FrameHeader& header, std::span<const std::byte> bytes) {
  std::span<const std::byte> first = std::as_bytes(std::span(&header, 1));
  while (!first.empty() || !bytes.empty()) {
    iovec parts[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                      {const_cast<std::byte*>(bytes.data()), bytes.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return path_ended("the client takes nothing");
    if (count < 0) return path_ended(system_error(errno, "cannot send to the client").value().what);
    const std::size_t of_first = std::min(static_cast<std::size_t>(count), first.size());
    first = first.subspan(of_first);
    bytes = bytes.subspan(static_cast<std::size_t>(count) - of_first);
  }
  return {};
}

Result<void> ServerFrames::send_file(const FrameHeader& header, int file, std::uint64_t offset) {
  RETURN_IF_ERROR(send_part(std::as_bytes(std::span(&header, 1)), MSG_MORE));
  off_t from = static_cast<off_t>(offset);
  for (std::uint64_t left = header.length; left > 0;) {
    const ssize_t count = ::sendfile(socket_.get(), file, &from, left);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return path_ended("the client takes nothing");
    if (count < 0 && (errno == EIO || errno == EINVAL || errno == EOVERFLOW || errno == ENOSYS))
      return fail(ErrorCode::io_error, system_error(errno, "cannot send from a segment").value().what);
    if (count < 0) return path_ended(system_error(errno, "cannot send to the client").value().what);
    if (count == 0) return path_ended("a segment was truncated while it was sent");
    left -= static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<void> ServerFrames::send_part(std::span<const std::byte> bytes, int flags) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | flags);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return path_ended("the client takes nothing");
    if (count < 0) return path_ended(system_error(errno, "cannot send to the client").value().what);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> ServerFrames::receive(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t count = ::recv(socket_.get(), out.data(), out.size(), MSG_WAITALL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return path_ended(system_error(errno, "cannot receive from the client").value().what);
    if (count == 0) return path_ended("the client closed it");
    out = out.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace forebay::fabric
