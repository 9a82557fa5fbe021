// SPDX-License-Identifier: Apache-2.0
#include "protocol/message_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::protocol {
namespace {

// Messages behind one another in the buffer are moved to its front only when this much of it is used up.
constexpr std::size_t compact_bytes = std::size_t{1} << 20;
constexpr std::size_t receive_bytes = std::size_t{64} << 10;
// After this much the others of the loop get their turn; what is left is announced again.
constexpr std::size_t receive_bytes_at_once_max = std::size_t{4} << 20;
// A buffer that had to hold a longer message is given back when it is empty.
constexpr std::size_t kept_buffer_bytes_max = std::size_t{256} << 10;

// A connection that fails is lost, by whatever number the network says so (ETIMEDOUT, EHOSTUNREACH, of a firewall
// EPERM, ...). io_error is what a disk says, which is final.
tl::unexpected<Error> connection_error(int number, std::string action) {
  auto failed = system_error(number, std::move(action));
  if (failed.value().code != ErrorCode::busy) failed.value().code = ErrorCode::disconnected;
  return failed;
}

}  // namespace

Error failure_of(const Message& message) {
  auto body = body_of<wire::Failure>(message);
  if (!body) return body.error();
  return Error{static_cast<ErrorCode>((*body)->code()), text_of((*body)->what()), text_of((*body)->where())};
}

MessageSocket::MessageSocket(Descriptor socket, std::size_t received_descriptors_max)
    : socket_(std::move(socket)), received_descriptors_max_(received_descriptors_max) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

Result<std::size_t> MessageSocket::send_some(std::span<const std::byte> first, std::span<const std::byte> second,
                                             const std::vector<Descriptor>& descriptors) {
  iovec parts[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                    {const_cast<std::byte*>(second.data()), second.size()}};
  msghdr header{};
  header.msg_iov = parts;
  header.msg_iovlen = second.empty() ? 1 : 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * descriptors_max)];
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    int* numbers = reinterpret_cast<int*>(CMSG_DATA(rights));
    for (const Descriptor& descriptor : descriptors) *numbers++ = descriptor.get();
  }
  while (true) {
    const ssize_t count = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    return connection_error(errno, "cannot send to the peer");
  }
}

Result<void> MessageSocket::send(MessageType type, std::uint32_t request, std::span<const std::uint8_t> body,
                                 std::vector<Descriptor> descriptors) {
  if (body.size() > body_bytes_max || descriptors.size() > descriptors_max) {
    return fail(ErrorCode::protocol, std::string("message too large: ") + wire::EnumNameMessageType(type));
  }
  Header header;
  header.type = static_cast<std::uint16_t>(type);
  header.descriptors = static_cast<std::uint16_t>(descriptors.size());
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.request = request;
  const auto header_bytes = std::as_bytes(std::span(&header, 1));
  const auto body_bytes = std::as_bytes(body);
  if (cipher_) return send_record(header_bytes, body_bytes);

  std::size_t sent = 0;
  if (unsent_.empty()) {
    ASSIGN_OR_RETURN(sent, send_some(header_bytes, body_bytes, descriptors));
    // Descriptors go with the first byte.
    if (sent > 0) descriptors.clear();
    if (sent == header_bytes.size() + body_bytes.size()) return {};
  }
  std::vector<std::byte> bytes;
  bytes.reserve(header_bytes.size() + body_bytes.size());
  bytes.insert(bytes.end(), header_bytes.begin(), header_bytes.end());
  bytes.insert(bytes.end(), body_bytes.begin(), body_bytes.end());
  keep_unsent(std::move(bytes), sent, std::move(descriptors));
  return {};
}

void MessageSocket::keep_unsent(std::vector<std::byte> bytes, std::size_t sent, std::vector<Descriptor> descriptors) {
  unsent_bytes_ += bytes.size() - sent;
  unsent_descriptors_ += descriptors.size();
  unsent_.push_back({std::move(bytes), sent, std::move(descriptors)});
}

Result<void> MessageSocket::send_record(std::span<const std::byte> header, std::span<const std::byte> body) {
  std::vector<std::byte> record(sizeof(std::uint32_t));
  cipher_->seal(header, body, record);
  const auto length = static_cast<std::uint32_t>(record.size() - sizeof(std::uint32_t));
  std::memcpy(record.data(), &length, sizeof length);
  std::size_t sent = 0;
  if (unsent_.empty()) {
    ASSIGN_OR_RETURN(sent, send_some(record, {}, {}));
    if (sent == record.size()) return {};
  }
  keep_unsent(std::move(record), sent, {});
  return {};
}

Result<bool> MessageSocket::flush() {
  while (!unsent_.empty()) {
    Unsent& front = unsent_.front();
    ASSIGN_OR_RETURN(auto count, send_some(std::span(front.bytes).subspan(front.sent), {}, front.descriptors));
    if (count == 0) return false;
    unsent_descriptors_ -= front.descriptors.size();
    front.descriptors.clear();
    front.sent += count;
    unsent_bytes_ -= count;
    if (front.sent == front.bytes.size()) unsent_.pop_front();
  }
  return true;
}

Result<void> MessageSocket::receive() {
  std::size_t taken = 0;
  while (unfinished_bytes() < unfinished_bytes_max()) {
    std::byte chunk[receive_bytes];
    const std::size_t wanted = std::min(receive_bytes, unfinished_bytes_max() - unfinished_bytes());
    iovec part{chunk, wanted};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * descriptors_max)];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t count = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return connection_error(errno, "cannot receive from the peer");
    }
    received_.insert(received_.end(), chunk, chunk + count);
    for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr; rights = CMSG_NXTHDR(&header, rights)) {
      if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t number_count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      const int* numbers = reinterpret_cast<const int*>(CMSG_DATA(rights));
      for (std::size_t i = 0; i < number_count; ++i) received_descriptors_.emplace_back(numbers[i]);
    }
    if (received_descriptors_.size() > received_descriptors_max_) {
      return fail(ErrorCode::protocol, "the peer sent descriptors that were not requested");
    }
    if ((header.msg_flags & MSG_CTRUNC) != 0)
      return fail(ErrorCode::protocol, "descriptors were lost; is the limit of open files too low (ulimit -n)?");
    if (count == 0) return fail(ErrorCode::disconnected, "the peer closed the connection");
    taken += static_cast<std::size_t>(count);
    if (static_cast<std::size_t>(count) < wanted || taken >= receive_bytes_at_once_max) return {};
  }
  return {};
}

std::size_t MessageSocket::unfinished_bytes_max() const noexcept {
  const std::size_t around = cipher_ ? sizeof(std::uint32_t) + RecordCipher::overhead_bytes_max : 0;
  return sizeof(Header) + received_body_bytes_max_ + around;
}

void MessageSocket::advance(std::size_t bytes) {
  received_start_ += bytes;
  if (received_start_ == received_.size()) {
    received_.clear();
    received_start_ = 0;
    if (received_.capacity() > kept_buffer_bytes_max) received_.shrink_to_fit();
  } else if (received_start_ > compact_bytes) {
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(received_start_));
    received_start_ = 0;
  }
}

Message MessageSocket::malformed(Message message) {
  // A peer that speaks another language: MessageType::none is never valid, so the caller ends the conversation.
  received_.clear();
  received_start_ = 0;
  return message;
}

Result<std::optional<std::vector<std::byte>>> MessageSocket::take_record() {
  const std::span<const std::byte> all = std::span(received_).subspan(received_start_);
  std::uint32_t length = 0;
  if (all.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, all.data(), sizeof length);
  if (length > sizeof(Header) + received_body_bytes_max_ + RecordCipher::overhead_bytes_max)
    return fail(ErrorCode::protocol, "a record is too long");
  if (all.size() - sizeof length < length) return std::nullopt;
  ASSIGN_OR_RETURN(auto plain, cipher_->open(all.subspan(sizeof length, length)));
  advance(sizeof length + length);
  return std::optional(std::move(plain));
}

std::optional<Message> MessageSocket::pop() {
  Message message;
  Header header;
  if (cipher_) {
    auto record = take_record();
    if (!record) return malformed(std::move(message));
    if (!*record) return std::nullopt;
    const std::span<const std::byte> plain = **record;
    if (plain.size() < sizeof header) return malformed(std::move(message));
    std::memcpy(&header, plain.data(), sizeof header);
    message.request = header.request;
    if (header.magic != magic || header.descriptors != 0 || header.body_bytes != plain.size() - sizeof header)
      return malformed(std::move(message));
    message.type = static_cast<MessageType>(header.type);
    message.body.assign(plain.begin() + sizeof header, plain.end());
    return message;
  }
  const std::size_t available = received_.size() - received_start_;
  if (available < sizeof header) return std::nullopt;
  std::memcpy(&header, received_.data() + received_start_, sizeof header);
  message.request = header.request;
  // Descriptors come with a message's first byte: those that are not here by now never come.
  if (header.magic != magic || header.body_bytes > received_body_bytes_max_ || header.descriptors > descriptors_max ||
      header.descriptors > received_descriptors_.size()) {
    return malformed(std::move(message));
  }
  if (available - sizeof header < header.body_bytes) return std::nullopt;
  message.type = static_cast<MessageType>(header.type);
  const auto body_start = received_.begin() + static_cast<std::ptrdiff_t>(received_start_ + sizeof header);
  message.body.assign(body_start, body_start + header.body_bytes);
  for (std::uint16_t i = 0; i < header.descriptors; ++i) {
    message.descriptors.push_back(std::move(received_descriptors_.front()));
    received_descriptors_.pop_front();
  }
  advance(sizeof header + header.body_bytes);
  return message;
}

}  // namespace forebay::protocol
