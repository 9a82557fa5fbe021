// SPDX-License-Identifier: Apache-2.0
#include "manager_call.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include <forebay/unix_socket.h>

namespace forebay::engine {
namespace {

constexpr std::size_t answer_bytes_max = std::size_t{1} << 20;
constexpr std::chrono::seconds answer_seconds_max{60};
constexpr std::chrono::milliseconds retry_interval{200};
constexpr int poll_interval_ms = 100;  // how soon an interrupt is noticed

std::string encoded(std::string_view text) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_') {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += '%';
      result += digits[byte >> 4];
      result += digits[byte & 15];
    }
  }
  return result;
}

// As umask(2) would say it, which can only be asked by changing it.
std::string own_umask() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Umask:")) return line.substr(line.find_first_of("01234567"));
  }
  return "0022";
}

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

Error interrupted() {
  return {ErrorCode::cancelled, "interrupted while waiting for the manager", {}};
}

// Until the socket is ready for these events. False if it is not in time.
Result<bool> ready(int socket, short events, const InterruptHook& interrupt) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < answer_seconds_max) {
    if (interrupt && interrupt()) return fail(interrupted());
    pollfd waiting{socket, events, 0};
    // A signal ends it early, so that the hook learns of it at once.
    if (::poll(&waiting, 1, poll_interval_ms) > 0) return true;
  }
  return false;
}

// The whole answer; nothing if the manager is not there. cancelled if the hook says so.
Result<std::optional<std::string>> asked(const std::string& root, const std::string& request,
                                         const InterruptHook& interrupt) {
  std::ifstream file(root + "/manager-endpoint");
  std::string path;
  if (!std::getline(file, path)) return std::nullopt;
  const Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return std::nullopt;
  // A manager that cannot take it now is asked again, as one that is not there.
  if (connect_unix(socket.get(), path) != 0) return std::nullopt;
  for (std::string_view left = request; !left.empty();) {
    const auto in_time = ready(socket.get(), POLLOUT, interrupt);
    if (!in_time) return fail(in_time.error());
    if (!*in_time) return std::nullopt;
    const ssize_t count = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return std::nullopt;
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  std::string answer;
  std::array<char, 4096> buffer{};
  while (answer.size() < answer_bytes_max) {
    const auto in_time = ready(socket.get(), POLLIN, interrupt);
    if (!in_time) return fail(in_time.error());
    if (!*in_time) return std::nullopt;
    const ssize_t count = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) return answer;
    answer.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return std::nullopt;
}

// The first digit of an answer's status, as in "HTTP/1.1 200 OK"; nothing if the answer is not whole.
std::optional<char> kind_of(const std::string& answer) {
  const std::size_t status = answer.find(' ');
  if (status > answer.find("\r\n\r\n") || answer.find("\r\n\r\n") == std::string::npos) return std::nullopt;
  return answer[status + 1];
}

// That of the header with which the manager names an error.
ErrorCode code_of(std::string_view head) {
  constexpr std::string_view name = "\r\nforebay-error: ";
  const std::size_t begin = head.find(name);
  if (begin == std::string_view::npos) return ErrorCode::invalid_argument;
  head.remove_prefix(begin + name.size());
  const std::string_view text = head.substr(0, head.find("\r\n"));
  for (auto number = static_cast<int>(ErrorCode::invalid_argument); number <= static_cast<int>(ErrorCode::failed);
       ++number) {
    if (to_string(static_cast<ErrorCode>(number)) == text) return static_cast<ErrorCode>(number);
  }
  return ErrorCode::protocol;
}

Result<void> understood(const std::string& answer, const std::string& where) {
  const auto kind = kind_of(answer);
  if (!kind) return fail(ErrorCode::protocol, "the manager's answer is not whole", where);
  if (*kind == '2') return {};
  const std::size_t head = answer.find("\r\n\r\n");
  return fail(code_of(std::string_view(answer).substr(0, head + 2)), answer.substr(head + 4), where);
}

Result<void> call(const StageOutRule& rule, std::int64_t wait_ms, const InterruptHook& interrupt, bool only_check) {
  std::error_code error;
  const std::string request = "POST /stage-rules?stream=" + encoded(rule.stream) + "&rules=" + encoded(rule.rules) +
                              "&folder=" + encoded(std::filesystem::current_path(error).string()) +
                              "&umask=" + own_umask() + (only_check ? "&check=true" : "") +
                              " HTTP/1.1\r\nHost: manager\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
  const std::string where = "StageOutRule of " + rule.stream;
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const auto answer = asked(rule.root, request, interrupt);
    if (!answer) return fail(answer.error());
    const bool failed = *answer && kind_of(**answer) == '5';
    if (*answer && !failed) return understood(**answer, where);
    if (wait_ms >= 0 && std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds{wait_ms}) {
      if (failed) return fail(ErrorCode::io_error, "the manager of " + rule.root + " failed; its log says why", where);
      return fail(ErrorCode::disconnected,
                  "the manager of " + rule.root + " cannot be reached; start it with `forebay up`", where);
    }
    for (auto left = retry_interval; left.count() > 0; left -= std::chrono::milliseconds{poll_interval_ms}) {
      if (interrupt && interrupt()) return fail(interrupted());
      ::poll(nullptr, 0, poll_interval_ms);
    }
  }
}

}  // namespace

Result<void> check_stage_out(const StageOutRule& rule, std::int64_t wait_ms, const InterruptHook& interrupt) {
  return call(rule, wait_ms, interrupt, true);
}

Result<void> begin_stage_out(const StageOutRule& rule, std::int64_t wait_ms, const InterruptHook& interrupt) {
  return call(rule, wait_ms, interrupt, false);
}

}  // namespace forebay::engine
