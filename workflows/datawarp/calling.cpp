// SPDX-License-Identifier: Apache-2.0
#include "calling.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include <forebay/manager_request.h>

#include "snapshot_file.h"

namespace forebay::datawarp {
namespace {

constexpr std::chrono::seconds patience_default{60};
constexpr std::chrono::seconds patience_max{86400};
// Longer than the manager lets a call wait.
constexpr std::chrono::seconds answer_wait{60};
constexpr std::chrono::milliseconds retry_interval{100};
/// After an answer that asks to come again: the manager has waited itself, unless it is about to end.
constexpr std::chrono::milliseconds ask_again_pause{10};

std::chrono::seconds patience() {
  const std::string text = environment("FOREBAY_DATAWARP_WAIT_SECONDS");
  unsigned seconds = 0;
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || error != std::errc() || after != text.data() + text.size()) return patience_default;
  return std::min(std::chrono::seconds{seconds}, patience_max);
}

std::optional<std::string> root() {
  if (std::string named = environment("FOREBAY_ROOT"); !named.empty()) return named;
  std::string problem;
  return slurm::instance_root(problem);
}

std::optional<std::string> real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::optional<std::string>(real.get()) : std::nullopt;
}

std::string request_of(std::string_view name, Fields fields) {
  std::string body(name);
  body += '\0';
  for (const auto& [key, value] : fields) {
    body += key;
    body += '\0';
    body += value;
    body += '\0';
  }
  return "POST /datawarp HTTP/1.1\r\nHost: manager\r\nConnection: close\r\nContent-Type: application/octet-stream\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string own_umask() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Umask:")) return line.substr(line.find_first_of("01234567"));
  }
  return "022";
}

int make_absolute(const char* name, std::string& path) {
  if (name == nullptr || *name == '\0') return -EINVAL;
  path = name;
  if (path.size() >= PATH_MAX) return -ENAMETOOLONG;
  if (path.front() != '/') {
    const std::unique_ptr<char, decltype(&std::free)> here(::getcwd(nullptr, 0), &std::free);
    if (!here) return -errno;
    path = std::string(here.get()) + "/" + path;
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.size() < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int resolve(const char* name, std::string& path) {
  if (const int error = make_absolute(name, path); error != 0) return error;
  std::string rest;
  // The last part keeps its name, for it may be a link; of what has no name of its own all is resolved.
  for (std::string head = path; !head.empty();) {
    const std::string part = head.substr(head.rfind('/') + 1);
    const bool is_named = !part.empty() && part != "." && part != "..";
    if (!is_named || !rest.empty()) {
      if (const auto real = real_path(head)) {
        path = (*real == "/" ? std::string() : *real) + rest;
        return path.empty() ? -EINVAL : 0;
      }
      if (errno != ENOENT) return -errno;
      if (!is_named && !part.empty()) return -ENOENT;
    }
    if (is_named) rest = "/" + part + rest;
    head.resize(head.rfind('/'));
  }
  path = rest;
  return path.empty() ? -EINVAL : 0;
}

int call(std::string_view name, Fields fields, std::string& body, bool waits) {
  const auto place = root();
  if (!place) return -ENODEV;
  const std::string request = request_of(name, fields);
  const auto longest = patience();
  auto away_since = std::chrono::steady_clock::now();
  while (true) {
    errno = 0;
    const auto answer = ask_manager(*place, request, {.connection = answer_wait, .part = answer_wait});
    const auto status = answer ? answer->number("x-forebay-exit-status") : std::nullopt;
    if (status) {
      if (waits && *status == EAGAIN) {
        away_since = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(ask_again_pause);
        continue;
      }
      body = answer->body;
      return -*status;
    }
    // Without that status the manager has not looked at it: it is busy, or ends.
    if (!answer && (errno == ENOENT || errno == EACCES)) return -ENODEV;
    if (answer && answer->status < 500) return -EIO;
    if (std::chrono::steady_clock::now() - away_since >= longest) return -ETIMEDOUT;
    std::this_thread::sleep_for(retry_interval);
  }
}

}  // namespace forebay::datawarp
