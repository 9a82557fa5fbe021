// SPDX-License-Identifier: Apache-2.0
#include "daemon/manager_calls.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <forebay/unix_socket.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/device.h"
#include "base/return_error.h"
#include "base/system_error.h"

namespace forebay::server {
namespace {

constexpr std::size_t target_bytes_max = 8192;
constexpr std::size_t answer_bytes_max = std::size_t{12} << 20;
// The manager itself cuts what takes longer; its answers to who waits for a change come after 30 s at most.
constexpr std::int64_t answer_ns_max = std::int64_t{120} * 1'000'000'000;
constexpr std::uint64_t endpoint_bytes_max = 4096;
constexpr std::array<std::string_view, 4> methods = {"GET", "POST", "PATCH", "DELETE"};

bool is_visible(char c) {
  return c > ' ' && c < 0x7f;
}

/// HTTP/1.0: the answer ends with the connection, and is in one piece.
std::string request_of(const Peer& peer, const wire::ManagerCallT& call) {
  std::string text = fmt::format("{} {} HTTP/1.0\r\nhost: manager\r\nforebay-for: {} {} {}\r\n", call.method,
                                 call.target, peer.uid, peer.gid, fmt::join(peer.groups, ","));
  if (!call.body.empty())
    text += fmt::format("content-type: application/json\r\ncontent-length: {}\r\n", call.body.size());
  text += "\r\n";
  text.append(reinterpret_cast<const char*>(call.body.data()), call.body.size());
  return text;
}

Result<wire::ManagerAnswerT> answer_of(std::string_view text) {
  const std::size_t head = text.find("\r\n\r\n");
  const std::size_t status = text.find(' ');
  wire::ManagerAnswerT answer;
  const bool whole = head != std::string_view::npos && status < head &&
                     std::from_chars(text.data() + status + 1, text.data() + head, answer.status).ec == std::errc();
  if (!whole) return fail(ErrorCode::disconnected, "the manager ended before it had answered; ask again");
  const std::string_view body = text.substr(head + 4);
  answer.body.assign(body.begin(), body.end());
  return answer;
}

}  // namespace

struct ManagerCalls::Call {
  Descriptor socket;
  uid_t user = 0;
  std::string request;
  std::size_t sent = 0;
  std::string answer;
  std::uint64_t bytes = 0;  ///< of both, as they were counted
  std::weak_ptr<const bool> wanted;
  Answered answered;
  EventLoop::TimerId timer;
};

ManagerCalls::ManagerCalls(EventLoop& loop, std::string root, ByteShares& bytes)
    : loop_(loop), root_(std::move(root)), bytes_(bytes) {}

ManagerCalls::~ManagerCalls() {
  for (auto& [descriptor, call] : calls_) {
    loop_.forget(descriptor);
    loop_.cancel(call->timer);
  }
}

Result<void> ManagerCalls::begin(const Peer& peer, const wire::ManagerCallT& call, std::weak_ptr<const bool> wanted,
                                 Answered answered) {
  const bool valid = std::ranges::find(methods, call.method) != methods.end() && call.target.starts_with('/') &&
                     call.target.size() <= target_bytes_max && std::ranges::all_of(call.target, is_visible);
  if (!valid) return fail(ErrorCode::invalid_argument, "this is no request to the manager");
  if (const auto own = of_users_.find(peer.uid); own != of_users_.end() && own->second >= of_user_max) {
    return fail(ErrorCode::busy, fmt::format("user {} has {} requests to the manager under way, as many as may be; "
                                             "wait for answers first",
                                             peer.uid, of_user_max));
  }
  auto endpoint = read_whole(posix_device(), root_ + "/manager-endpoint", endpoint_bytes_max);
  if (!endpoint) return fail(ErrorCode::disconnected, "there is no manager on the node that was asked", root_);
  std::string path(reinterpret_cast<const char*>(endpoint->data()), endpoint->size());
  while (!path.empty() && path.back() == '\n') path.pop_back();
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return system_error(errno, "cannot make a socket");
  if (connect_unix(socket.get(), path) != 0) {
    if (errno == EAGAIN) return fail(ErrorCode::busy, "the manager has too much to do; ask again");
    return fail(ErrorCode::disconnected, "the manager does not run; start it with `forebay up`", root_);
  }
  const int descriptor = socket.get();
  auto made = std::make_unique<Call>();
  made->socket = std::move(socket);
  made->user = peer.uid;
  made->request = request_of(peer, call);
  made->wanted = std::move(wanted);
  made->answered = std::move(answered);
  Call& begun = *made;
  auto ready = count(begun);
  if (ready) ready = loop_.watch(descriptor, EPOLLOUT | EPOLLIN, [this, &begun](std::uint32_t) { on_events(begun); });
  if (!ready) {
    bytes_.change(begun.user, begun.bytes, 0);
    return ready;
  }
  begun.timer = loop_.at(monotonic_ns() + answer_ns_max,
                         [this, &begun] { end(begun, fail(ErrorCode::timeout, "the manager does not answer")); });
  calls_.emplace(descriptor, std::move(made));
  ++of_users_[peer.uid];
  return {};
}

void ManagerCalls::on_events(Call& call) {
  auto answered = go_on(call);
  if (!answered) {
    end(call, fail(std::move(answered.error())));
  } else if (*answered || call.wanted.expired()) {
    end(call, answer_of(call.answer));
  }
}

Result<bool> ManagerCalls::go_on(Call& call) {
  while (call.sent < call.request.size()) {
    const ssize_t count =
        ::send(call.socket.get(), call.request.data() + call.sent, call.request.size() - call.sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    // One that refuses the request before it is whole has answered.
    if (count < 0) break;
    call.sent += static_cast<std::size_t>(count);
    if (call.sent == call.request.size()) loop_.change(call.socket.get(), EPOLLIN);
  }
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t count = ::recv(call.socket.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count <= 0) return true;
    if (call.answer.size() + static_cast<std::size_t>(count) > answer_bytes_max) {
      return fail(ErrorCode::unsupported,
                  "the manager's answer is longer than one to another node may be; ask on the manager's node");
    }
    call.answer.append(buffer.data(), static_cast<std::size_t>(count));
    RETURN_IF_ERROR(this->count(call));
  }
}

Result<void> ManagerCalls::count(Call& call) {
  const std::uint64_t now = call.request.size() + call.answer.size();
  if (bytes_.change(call.user, std::exchange(call.bytes, now), now)) return {};
  return fail(ErrorCode::busy,
              fmt::format("user {} has as many bytes of requests and answers under way as it may; wait "
                          "for answers first",
                          call.user));
}

void ManagerCalls::end(Call& call, Result<wire::ManagerAnswerT> answer) {
  const int descriptor = call.socket.get();
  loop_.forget(descriptor);
  loop_.cancel(call.timer);
  if (const auto own = of_users_.find(call.user); own != of_users_.end() && --own->second == 0) of_users_.erase(own);
  bytes_.change(call.user, std::exchange(call.bytes, 0), 0);
  auto ended = calls_.extract(descriptor);
  if (!call.wanted.expired()) call.answered(std::move(answer));
}

}  // namespace forebay::server
