// SPDX-License-Identifier: Apache-2.0
// dw_wlm_cli: the program that Slurm's plugin burst_buffer/datawarp starts. It reads the script with its own
// rights, passes it to the manager over its socket, and prints the answer. All work happens in the manager and
// continues when this process has ended. Lists (pools, show_*) are files that the manager replaces, so they can be read
// while it is down.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t file_bytes_max = std::size_t{4} << 20;
constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;
// Slurm holds its locks during these calls, so a manager that is away is told at once. The others wait for it.
constexpr std::chrono::seconds patience_locked{1};
constexpr std::chrono::seconds patience{240};
constexpr std::chrono::milliseconds retry_interval{200};

/// Prints what Slurm shows a person: one stream, for Slurm reads both as one.
[[noreturn]] void fail(const std::string& text) {
  std::fputs(("forebay: " + text + "\n").c_str(), stdout);
  std::exit(1);
}

/// Slurm starts this with nearly all signals blocked, SIGTERM among them.
void reset_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

std::optional<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::string content;
  char buffer[65536];
  while (content.size() <= bytes_max) {
    const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = errno;
      ::close(descriptor);
      errno = error;
      if (count < 0) return std::nullopt;
      return content;
    }
    content.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(descriptor);
  errno = EFBIG;
  return std::nullopt;
}

/// The first `root = "…"` above the first table of the configuration, else /var/lib/forebay.
std::string instance_root() {
  const char* named = std::getenv("FOREBAY_CONFIG");
  const std::string path = named != nullptr && *named != '\0' ? named : "/etc/forebay/forebay.toml";
  const auto content = read_file(path, file_bytes_max);
  if (!content) {
    if (errno == ENOENT) return "/var/lib/forebay";
    fail("the configuration " + path + " cannot be read: " + std::strerror(errno));
  }
  std::size_t begin = 0;
  while (begin < content->size()) {
    const std::size_t end = std::min(content->find('\n', begin), content->size());
    std::string_view line(content->data() + begin, end - begin);
    begin = end + 1;
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] == '#') continue;
    if (line[first] == '[') break;
    if (line.substr(first, 4) != "root") continue;
    const auto equals = line.find_first_not_of(" \t", first + 4);
    if (equals == std::string_view::npos || line[equals] != '=') continue;
    const auto open = line.find_first_of("\"'", equals);
    if (open == std::string_view::npos) fail("root in " + path + " is no text in quotes");
    const auto close = line.find(line[open], open + 1);
    if (close == std::string_view::npos) fail("root in " + path + " has no closing quotation mark");
    return std::string(line.substr(open + 1, close - open - 1));
  }
  return "/var/lib/forebay";
}

std::string encoded(std::string_view text) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (plain) {
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

/// A connection to the manager; -1 if there is none now, with the reason in errno.
int connected(const std::string& root) {
  auto path = read_file(root + "/manager-endpoint", 4096);
  if (!path) return -1;
  while (!path->empty() && (path->back() == '\n' || path->back() == ' ')) path->pop_back();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path->size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path->data(), path->size());
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return -1;
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return connection;
  const int error = errno;
  ::close(connection);
  errno = error;
  return -1;
}

bool sent(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// All that the manager answers; nothing if the connection broke before the answer was whole.
std::optional<std::string> received(int connection) {
  std::string answer;
  char buffer[65536];
  while (answer.size() < answer_bytes_max) {
    const ssize_t count = ::recv(connection, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) return answer;
    answer.append(buffer, static_cast<std::size_t>(count));
  }
  return std::nullopt;
}

struct Answer {
  int status = 1;
  std::string text;
};

/// Reads an HTTP answer; nothing if it is not whole.
std::optional<Answer> parsed(const std::string& bytes) {
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return std::nullopt;
  std::string head = bytes.substr(0, end + 2);
  for (char& c : head) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const auto value = [&](const char* name) -> std::optional<long> {
    const auto at = head.find(std::string("\r\n") + name + ":");
    if (at == std::string::npos) return std::nullopt;
    return std::strtol(head.c_str() + at + 3 + std::strlen(name), nullptr, 10);
  };
  const auto length = value("content-length");
  const std::string body = bytes.substr(end + 4);
  if (!length || *length < 0 || body.size() != static_cast<std::size_t>(*length)) return std::nullopt;
  if (const auto status = value("x-forebay-exit-status")) return Answer{static_cast<int>(*status), body};
  return Answer{1, "forebay: the manager refuses: " + body + "\n"};
}

std::optional<Answer> asked(const std::string& root, const std::string& request) {
  const int connection = connected(root);
  if (connection < 0) return std::nullopt;
  std::optional<std::string> bytes;
  if (sent(connection, request)) bytes = received(connection);
  const int error = errno;
  ::close(connection);
  errno = error;
  return bytes ? parsed(*bytes) : std::nullopt;
}

Answer ask(const std::string& root, const std::string& request, std::chrono::seconds wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (true) {
    if (auto answer = asked(root, request)) return *answer;
    if (std::chrono::steady_clock::now() >= deadline)
      fail("the manager of " + root + " cannot be reached; start it with `forebay up`");
    std::this_thread::sleep_for(retry_interval);
  }
}

void write_path_file(const std::string& path, const std::string& content) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) fail("the path file cannot be made: " + std::string(std::strerror(errno)));
  std::string_view rest = content;
  while (!rest.empty()) {
    const ssize_t count = ::write(descriptor, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("the path file cannot be written: " + std::string(std::strerror(errno)));
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::close(descriptor) != 0) fail("the path file cannot be written: " + std::string(std::strerror(errno)));
}

std::string option(const std::vector<std::string>& arguments, const char* name) {
  for (std::size_t at = 0; at + 1 < arguments.size(); ++at) {
    if (arguments[at] == name) return arguments[at + 1];
  }
  return {};
}

bool is_list(const std::string& function) {
  return function == "pools" || function == "show_sessions" || function == "show_instances" ||
         function == "show_configurations";
}

}  // namespace

int main(int argc, char** argv) {
  reset_signals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string function = option(arguments, "--function");
  if (function.empty()) fail("usage: dw_wlm_cli --function NAME …; Slurm calls this (docs/operations/slurm.md)");
  const std::string root = instance_root();

  if (is_list(function)) {
    const std::string path = root + "/slurm/" + function + ".json";
    const auto list = read_file(path, answer_bytes_max);
    if (!list || list->empty())
      fail("there is no list " + path + "; start the manager with `forebay up`, with [slurm] in its configuration");
    std::fputs(list->c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  }

  std::string script;
  if (const std::string path = option(arguments, "--job"); !path.empty()) {
    auto content = read_file(path, file_bytes_max);
    // A teardown may name a script that Slurm has removed; it needs none.
    if (!content && function != "teardown") fail("the script cannot be read: " + std::string(std::strerror(errno)));
    script = content.value_or(std::string());
  }
  std::string target = "/slurm?";
  for (const std::string& argument : arguments) target += "a=" + encoded(argument) + "&";
  if (const std::string path = option(arguments, "--nodehostnamefile"); !path.empty()) {
    // One node a line. The manager opens no file of Slurm's.
    if (const auto nodes = read_file(path, file_bytes_max))
      target += "a=--node-count&a=" + std::to_string(std::count(nodes->begin(), nodes->end(), '\n')) + "&";
  }
  const std::string request =
      "POST " + target + " HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n" +
      "Content-Type: application/octet-stream\r\nContent-Length: " + std::to_string(script.size()) + "\r\n\r\n" +
      script;
  const bool locked = function == "job_process" || function == "paths";
  const Answer answer = ask(root, request, locked ? patience_locked : patience);
  if (function == "paths" && answer.status == 0) {
    write_path_file(option(arguments, "--pathfile"), answer.text);
    return 0;
  }
  std::fputs(answer.text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? answer.status : 1;
}
