// SPDX-License-Identifier: Apache-2.0
#include "manager_call.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <forebay/manager_request.h>

namespace forebay::engine {
namespace {

// A manager that cannot take a connection now is asked again, as one that is not there.
constexpr ManagerWaits waits{.connection = std::chrono::milliseconds{1}, .part = std::chrono::seconds{60}};
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

Error interrupted() {
  return {ErrorCode::cancelled, "interrupted while waiting for the manager", {}};
}

// That of the header with which the manager names an error.
ErrorCode code_of(const HttpAnswer& answer) {
  const auto text = answer.header("forebay-error");
  if (!text) return ErrorCode::invalid_argument;
  for (auto number = static_cast<int>(ErrorCode::invalid_argument); number <= static_cast<int>(ErrorCode::failed);
       ++number) {
    if (to_string(static_cast<ErrorCode>(number)) == *text) return static_cast<ErrorCode>(number);
  }
  return ErrorCode::protocol;
}

Result<void> understood(const HttpAnswer& answer, const std::string& where) {
  if (answer.status / 100 == 2) return {};
  return fail(code_of(answer), answer.body, where);
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
    const auto answer = ask_manager(rule.root, request, waits, interrupt);
    if (!answer && errno == ECANCELED) return fail(interrupted());
    const bool failed = answer && answer->status >= 500;
    if (answer && !failed) return understood(*answer, where);
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
