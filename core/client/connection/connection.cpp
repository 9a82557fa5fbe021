// SPDX-License-Identifier: Apache-2.0
#include "client/connection/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <forebay/unix_socket.h>

#include "base/fail_point.h"
#include "base/return_error.h"
#include "base/system_error.h"
#include "client/connection/pause.h"

namespace forebay::client {

using protocol::Message;
using protocol::MessageType;

namespace {

// The interrupt hook is asked this often.
constexpr std::int64_t slice_ms = 100;
// A remote server that says nothing for so long is asked whether it lives, and given up if it does not answer.
constexpr std::int64_t silence_before_heartbeat_ms = 5'000;
constexpr std::int64_t silence_ms_max = 15'000;

Error nobody_there(const std::string& path) {
  return {ErrorCode::disconnected, "no Forebay server is running there; start it with `forebay up`", path};
}

Result<Descriptor> connect_socket(const std::string& path, Deadline deadline, const InterruptHook& interrupt) {
  while (true) {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return system_error(errno, "cannot make a socket");
    if (connect_unix(socket.get(), path) == 0) return socket;
    const int error = errno;
    if (error == EAGAIN) {  // the server's queue of connections is full
      if (deadline.passed())
        return fail(ErrorCode::timeout, "the server does not accept connections; is it stopped or overloaded?", path);
      RETURN_IF_ERROR(pause_ms(10, interrupt));
      continue;
    }
    if (error == EINTR) continue;
    if (error == ENOENT || error == ECONNREFUSED) return fail(nobody_there(path));
    return system_error(error, "cannot connect to the Forebay server", path);
  }
}

}  // namespace

Connection::Connection(Descriptor socket, ServerPlace place, InterruptHook interrupt)
    : place_(std::move(place)), interrupt_(std::move(interrupt)), socket_(std::move(socket)) {}

Result<std::shared_ptr<Connection>> Connection::open(const ServerPlace& place, Deadline deadline,
                                                     InterruptHook interrupt) {
  if (place.remote) return open_remote(place, deadline, std::move(interrupt));
  ASSIGN_OR_RETURN(auto socket, connect_socket(place.socket_path, deadline, interrupt));
  std::shared_ptr<Connection> connection(new Connection(std::move(socket), place, std::move(interrupt)));
  RETURN_IF_ERROR(connection->greet(deadline));
  return connection;
}

Result<void> Connection::greet(Deadline deadline) {
  wire::HelloT hello;
  hello.version = protocol::protocol_version;
  hello.program = program_invocation_short_name;
  auto answer = call(MessageType::hello, hello, MessageType::welcome, deadline);
  if (!answer) {
    if (answer.error().code == ErrorCode::timeout) {
      return fail(ErrorCode::timeout, "the server does not answer; is it stopped or overloaded?", place_.text());
    }
    return fail(std::move(answer.error()));
  }
  return take_welcome(*answer);
}

Result<void> Connection::take_welcome(const Message& answer) {
  ASSIGN_OR_RETURN(auto welcome, protocol::body_of<wire::Welcome>(answer));
  if (welcome->version() != protocol::protocol_version) {
    return fail(ErrorCode::unsupported, "the server speaks protocol version " + std::to_string(welcome->version()) +
                                            ", this client " + std::to_string(protocol::protocol_version) +
                                            "; install the same release on both sides");
  }
  server_run_ = welcome->server_run();
  root_uuid_ = protocol::text_of(welcome->root_uuid());
  servers_boot_id_ = protocol::text_of(welcome->boot_id());
  servers_socket_ = protocol::text_of(welcome->socket());
  return {};
}

Result<std::uint32_t> Connection::send(MessageType type, std::span<const std::uint8_t> body, bool with_answer) {
  std::uint32_t request = 0;
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return fail(broken_error());
    if (with_answer) {
      if (++last_request_ == 0) last_request_ = 1;
      request = last_request_;
      outstanding_.insert(request);
    }
  }
  Result<void> sent;
  {
    const std::lock_guard lock(send_mutex_);
    fail_point("client.message.before_send");
    sent = socket_.send(type, request, body);
    fail_point("client.message.after_send");
  }
  if (!sent) {
    // An answer that tells why may still be on its way; whoever waits will find it or the end of the connection.
    if (sent.error().code == ErrorCode::protocol) return fail(std::move(sent.error()));
    break_with(sent.error());
    return fail(broken_error());
  }
  return request;
}

Result<void> Connection::receive_some(std::int64_t timeout_ms, std::vector<Message>& messages) {
  pollfd poll_entry{socket_.descriptor(), POLLIN, 0};
  {
    const std::lock_guard lock(send_mutex_);
    if (socket_.has_unsent()) poll_entry.events |= POLLOUT;
  }
  const int ready = ::poll(&poll_entry, 1, static_cast<int>(timeout_ms));
  if (ready < 0 && errno != EINTR) return system_error(errno, "cannot wait for the server");
  if (ready <= 0) return {};
  if ((poll_entry.revents & POLLOUT) != 0) {
    const std::lock_guard lock(send_mutex_);
    RETURN_IF_ERROR(socket_.flush());
  }
  if ((poll_entry.revents & ~POLLOUT) == 0) return {};
  const auto received = socket_.receive();
  while (auto message = socket_.pop()) {
    if (message->type == MessageType::none)
      return fail(ErrorCode::protocol, "the server sent something that is not Forebay's protocol", place_.text());
    messages.push_back(std::move(*message));
  }
  return received;
}

Result<Message> Connection::wait(std::uint32_t request, Deadline deadline) {
  std::unique_lock lock(mutex_);
  bool polled = false;
  std::int64_t heard_ns = monotonic_ns();
  bool asked_for_life = false;
  while (true) {
    if (auto found = answers_.find(request); found != answers_.end()) {
      Message message = std::move(found->second);
      answers_.erase(found);
      fail_point("client.message.received");
      return message;
    }
    if (broken_) return fail(broken_error());
    // A deadline that has passed still lets in what has arrived already.
    const std::int64_t timeout_ms = deadline.remaining_ms(slice_ms);
    if (timeout_ms == 0 && polled) return fail(ErrorCode::timeout, "the server has not answered in time");
    if (receiving_) {
      answered_.wait_for(lock, std::chrono::milliseconds(timeout_ms));
      polled = polled || !receiving_ || timeout_ms == 0;
    } else {
      receiving_ = true;
      lock.unlock();
      std::vector<Message> messages;
      auto received = receive_some(timeout_ms, messages);
      lock.lock();
      receiving_ = false;
      polled = true;
      for (Message& message : messages) {
        if (outstanding_.erase(message.request) > 0) {
          answers_.emplace(message.request, std::move(message));
        } else {
          discard(std::move(message));
        }
      }
      if (!received && !broken_) broken_ = std::move(received.error());
      answered_.notify_all();
      if (!messages.empty()) {
        heard_ns = monotonic_ns();
        asked_for_life = false;
      }
      if (!messages.empty() || broken_) continue;
    }
    if (is_remote()) {
      const std::int64_t silence_ms = (monotonic_ns() - heard_ns) / 1'000'000;
      if (silence_ms > silence_ms_max) {
        broken_ = Error{ErrorCode::disconnected, "it has said nothing for 15 s", {}};
        answered_.notify_all();
        continue;
      }
      if (silence_ms > silence_before_heartbeat_ms && !asked_for_life) {
        asked_for_life = true;
        lock.unlock();
        (void)tell(MessageType::heartbeat, wire::HeartbeatT());  // where it fails, the connection says so
        lock.lock();
        continue;
      }
    }
    if (interrupt_) {
      lock.unlock();
      const bool stop = interrupt_();
      lock.lock();
      if (stop) return fail(ErrorCode::cancelled, "interrupted while waiting for the server");
    }
  }
}

void Connection::forget(std::uint32_t request) {
  const std::lock_guard lock(mutex_);
  outstanding_.erase(request);
  if (auto answer = answers_.extract(request)) discard(std::move(answer.mapped()));
}

void Connection::discard(Message message) {
  if (message.type == MessageType::step_event) unwanted_steps_.push_back(std::move(message));
}

std::vector<Message> Connection::take_unwanted_steps() {
  const std::lock_guard lock(mutex_);
  return std::exchange(unwanted_steps_, {});
}

bool Connection::is_broken() {
  const std::lock_guard lock(mutex_);
  return broken_.has_value();
}

void Connection::give_up() noexcept {
  ::shutdown(socket_.descriptor(), SHUT_RDWR);
  break_with({ErrorCode::io_error, "no memory", {}});
}

void Connection::break_with(Error error) {
  const std::lock_guard lock(mutex_);
  if (!broken_) broken_ = std::move(error);
  answered_.notify_all();
}

Error Connection::broken_error() const {
  Error error = *broken_;
  if (error.code == ErrorCode::disconnected || error.code == ErrorCode::io_error) {
    error = {ErrorCode::disconnected,
             "the connection to the Forebay server was lost (" + broken_->what +
                 "); restart it with `forebay up`; its log says what happened",
             place_.text()};
  }
  return error;
}

Result<Message> Connection::expect(Message message, MessageType type) {
  if (message.type == type) return message;
  if (message.type == MessageType::failure) return fail(protocol::failure_of(message));
  return fail(ErrorCode::protocol, std::string("the server answered with ") + wire::EnumNameMessageType(message.type) +
                                       " instead of " + wire::EnumNameMessageType(type));
}

}  // namespace forebay::client
