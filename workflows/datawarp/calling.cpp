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

#include "calling_elsewhere.h"
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

std::string body_of(std::string_view name, Fields fields) {
  std::string body(name);
  body += '\0';
  for (const auto& [key, value] : fields) {
    body += key;
    body += '\0';
    body += value;
    body += '\0';
  }
  return body;
}

/// The manager of this node.
Asked ask_here(const std::string& root, const std::string& body) {
  const std::string request =
      "POST /datawarp HTTP/1.1\r\nHost: manager\r\nConnection: close\r\nContent-Type: application/octet-stream\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  errno = 0;
  const auto answer = ask_manager(root, request, {.connection = answer_wait, .part = answer_wait});
  if (answer) return {answer->status, answer->body, false};
  return {0, {}, errno == ENOENT || errno == EACCES};
}

/// What it has answered: an error number, then what belongs to it. Nothing where it has not looked at the call.
std::optional<int> taken_from(Asked& asked) {
  const std::size_t end = asked.body.find('\0');
  int number = 0;
  if (asked.status != 200 || end == std::string::npos) return std::nullopt;
  const auto [after, error] = std::from_chars(asked.body.data(), asked.body.data() + end, number);
  if (error != std::errc() || after != asked.body.data() + end) return std::nullopt;
  asked.body.erase(0, end + 1);
  return number;
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
  const std::string server = environment("FOREBAY_SERVER");
  bool is_elsewhere = !place;
  const std::string request = body_of(name, fields);
  const auto longest = patience();
  auto away_since = std::chrono::steady_clock::now();
  while (true) {
    if (is_elsewhere && server.empty()) return -ENODEV;
    Asked asked = is_elsewhere ? ask_elsewhere(server, request) : ask_here(*place, request);
    if (asked.is_absent) {
      if (is_elsewhere) return -ENODEV;
      is_elsewhere = true;  // the job's other nodes do not have the manager
      continue;
    }
    if (const auto number = taken_from(asked)) {
      if (waits && *number == EAGAIN) {
        away_since = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(ask_again_pause);
        continue;
      }
      body = std::move(asked.body);
      return -*number;
    }
    // Else the manager has not looked at it: it is busy, or ends.
    if (asked.status != 0 && asked.status < 500) return -EIO;
    if (std::chrono::steady_clock::now() - away_since >= longest) return -ETIMEDOUT;
    std::this_thread::sleep_for(retry_interval);
  }
}

}  // namespace forebay::datawarp
