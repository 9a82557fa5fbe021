// SPDX-License-Identifier: Apache-2.0
#include "fabric/frame_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::fabric {
namespace {

constexpr std::int64_t slice_ms = 100;

bool would_wait(int number) noexcept {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

tl::unexpected<Error> lost(int number) {
  return fail(ErrorCode::disconnected,
              "the data path to the server was lost: " + system_error(number, "its socket failed").value().what);
}

}  // namespace

FrameSocket::FrameSocket(Descriptor socket, std::int64_t silence_ms) noexcept
    : socket_(std::move(socket)), silence_ms_(silence_ms) {
  (void)::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) & ~O_NONBLOCK);
  const timeval slice{0, slice_ms * 1000};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    (void)::setsockopt(socket_.get(), SOL_SOCKET, option, &slice, sizeof slice);
}

Result<void> FrameSocket::may_go_on(int number, std::int64_t since_ns, const KeepWaiting& keep_waiting) {
  if (number != 0 && !would_wait(number)) return lost(number);
  // A signal comes also when the process was stopped for a long time, which says nothing about the server.
  if (number != EINTR && monotonic_ns() - since_ns > silence_ms_ * ns_per_ms)
    return fail(ErrorCode::timeout,
                "nothing has moved on the data path to the server for " + std::to_string(silence_ms_ / 1000) + " s");
  return keep_waiting();
}

Result<void> FrameSocket::receive(std::span<std::byte> out, const KeepWaiting& keep_waiting) {
  Incoming incoming(out);
  return receive(incoming, out.size(), keep_waiting);
}

Result<void> FrameSocket::receive(Incoming& incoming, std::size_t count, const KeepWaiting& keep_waiting) {
  std::int64_t since_ns = monotonic_ns();
  while (count > 0) {
    const std::span<std::byte> out = incoming.next(count);
    // The kernel waits for all of it, at most slice_ms: one call instead of two for every few packets.
    const ssize_t received = ::recv(socket_.get(), out.data(), out.size(), MSG_WAITALL);
    const int number = received < 0 ? errno : 0;
    if (received == 0) return fail(ErrorCode::disconnected, "the server closed the data path");
    if (received > 0) {
      incoming.arrived(static_cast<std::size_t>(received));
      count -= static_cast<std::size_t>(received);
      since_ns = monotonic_ns();
    }
    if (received != static_cast<ssize_t>(out.size())) RETURN_IF_ERROR(may_go_on(number, since_ns, keep_waiting));
  }
  return {};
}

Result<FrameHeader> FrameSocket::receive_header(const KeepWaiting& keep_waiting) {
  FrameHeader header;
  RETURN_IF_ERROR(receive(std::as_writable_bytes(std::span(&header, 1)), keep_waiting));
  return header;
}

Result<Error> FrameSocket::receive_failure(const FrameHeader& header, const KeepWaiting& keep_waiting) {
  std::string text(header.length, '\0');
  RETURN_IF_ERROR(receive(std::as_writable_bytes(std::span(text)), keep_waiting));
  return error_of(header, std::move(text));
}

Result<std::optional<Error>> FrameSocket::check_data(const FrameHeader& header, std::uint64_t ticket,
                                                     const Incoming& incoming, const KeepWaiting& keep_waiting) {
  RETURN_IF_ERROR(check_server_frame(header));
  if (header.ticket != ticket) return fail(ErrorCode::protocol, "the data path brought the answer to another request");
  if (header.kind == FrameKind::failed) {
    ASSIGN_OR_RETURN(auto failure, receive_failure(header, keep_waiting));
    return std::optional(std::move(failure));
  }
  fail_point("client.data.receiving");
  if (header.kind != FrameKind::data || header.length > incoming.size())
    return fail(ErrorCode::protocol, "the data path brought something else than the bytes that were asked for");
  return std::optional<Error>();
}

Result<Result<void>> FrameSocket::receive_data(std::uint64_t ticket, Incoming& incoming,
                                               const KeepWaiting& keep_waiting) {
  while (!incoming.empty()) {
    ASSIGN_OR_RETURN(const auto header, receive_header(keep_waiting));
    ASSIGN_OR_RETURN(auto failure, check_data(header, ticket, incoming, keep_waiting));
    if (failure) return Result<void>(fail(std::move(*failure)));
    RETURN_IF_ERROR(receive(incoming, header.length, keep_waiting));
  }
  return Result<void>();
}

Result<std::size_t> FrameSocket::send_some(std::span<const std::byte> first, std::span<const std::byte> bytes) {
  iovec parts[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                    {const_cast<std::byte*>(bytes.data()), bytes.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0) return static_cast<std::size_t>(count);
  if (would_wait(errno)) return std::size_t{0};
  return lost(errno);
}

Result<std::size_t> FrameSocket::receive_some(std::span<std::byte> out) {
  const ssize_t count = ::recv(socket_.get(), out.data(), out.size(), MSG_DONTWAIT);
  if (count > 0) return static_cast<std::size_t>(count);
  if (count == 0) return fail(ErrorCode::disconnected, "the server closed the data path");
  if (would_wait(errno)) return std::size_t{0};
  return lost(errno);
}

Result<bool> FrameSocket::receive_some_header(MovingFrame& frame) {
  while (!frame.rest_of_header().empty()) {
    ASSIGN_OR_RETURN(const std::size_t moved, receive_some(frame.rest_of_header()));
    if (moved == 0) return false;
    frame.header_bytes += moved;
  }
  return true;
}

Result<void> FrameSocket::send(const FrameHeader& header, std::span<const std::byte> bytes,
                               const KeepWaiting& keep_waiting) {
  std::int64_t since_ns = monotonic_ns();
  std::span<const std::byte> first = std::as_bytes(std::span(&header, 1));
  while (!first.empty() || !bytes.empty()) {
    iovec parts[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                      {const_cast<std::byte*>(bytes.data()), bytes.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    const int number = count < 0 ? errno : 0;
    if (count > 0) {
      const std::size_t of_first = std::min(static_cast<std::size_t>(count), first.size());
      first = first.subspan(of_first);
      bytes = bytes.subspan(static_cast<std::size_t>(count) - of_first);
      since_ns = monotonic_ns();
    }
    if (!first.empty() || !bytes.empty()) RETURN_IF_ERROR(may_go_on(number, since_ns, keep_waiting));
  }
  return {};
}

}  // namespace forebay::fabric
