// SPDX-License-Identifier: Apache-2.0
// bench_tcp: the limit that remote clients are compared with. The same bytes over one TCP connection, with the same
// work on files (pwrite of what arrives, sendfile of what is asked for) and, where asked for, a CRC-32C on both sides.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <forebay/checksum.h>

#include "timeline.h"

namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
struct Options {
  std::string host;
  std::string port = "7470";
  std::string path;
  std::size_t bytes = 0;
  std::uint64_t steps = 0;
  /// Places in the file, which are used in turn: space that is in the page cache already.
  std::uint64_t slots = 4;
  bool checksums = false;
};

[[noreturn]] void failed(const std::string& call) {
  bench::give_up("bench_tcp: " + call + ": " + std::strerror(errno));
}

struct Request {
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
};

void send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) failed("send");
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

bool receive_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), MSG_WAITALL);
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

addrinfo* address_of(const Options& options, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (::getaddrinfo(options.host.c_str(), options.port.c_str(), &hints, &found) != 0) failed("getaddrinfo");
  return found;
}

void answer(int socket, int file, const Options& options) {
  bench::Buffer buffer(chunk_bytes);
  Request request;
  while (receive_all(socket, std::as_writable_bytes(std::span(&request, 1)))) {
    auto offset = static_cast<off_t>(request.step % options.slots * request.bytes);
    std::uint64_t checksum = 0;
    for (std::uint64_t left = request.bytes; left > 0;) {
      const std::size_t length = std::min<std::uint64_t>(left, chunk_bytes);
      if (request.writes != 0) {
        const auto chunk = buffer.bytes().first(length);
        if (!receive_all(socket, chunk)) return;
        if (options.checksums) checksum = forebay::crc32c(chunk, static_cast<std::uint32_t>(checksum));
        if (::pwrite(file, chunk.data(), length, offset) != static_cast<ssize_t>(length)) failed("pwrite");
        offset += static_cast<off_t>(length);
        left -= length;
      } else {
        const ssize_t sent = ::sendfile(socket, file, &offset, left);
        if (sent <= 0) failed("sendfile");
        left -= static_cast<std::uint64_t>(sent);
      }
    }
    if (request.writes != 0) send_all(socket, std::as_bytes(std::span(&checksum, 1)));
  }
}

void serve(const Options& options) {
  const int file = ::open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) failed("open " + options.path);
  bench::Buffer buffer(options.bytes);
  std::memset(buffer.data(), 1, options.bytes);
  for (std::uint64_t slot = 0; slot < options.slots; ++slot) {
    if (::pwrite(file, buffer.data(), options.bytes, static_cast<off_t>(slot * options.bytes)) !=
        static_cast<ssize_t>(options.bytes)) {
      failed("pwrite");
    }
  }
  if (::fdatasync(file) != 0) failed("fdatasync");  // nothing is written back while a case runs
  const addrinfo* address = address_of(options, AI_PASSIVE);
  const int listener = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, address->ai_addr, address->ai_addrlen) != 0 || ::listen(listener, 1) != 0) failed("listen");
  bench::Timeline timeline("tcp");
  std::cout << "ready" << std::endl;
  const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0) failed("accept");
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  answer(socket, file, options);
  timeline.print();
}

void run(const Options& options, bool writes) {
  const addrinfo* address = address_of(options, 0);
  const int socket = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(socket, address->ai_addr, address->ai_addrlen) != 0) failed("connect");
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  bench::StepData data(1, options.bytes);
  const auto bytes = std::as_writable_bytes(std::span(data.variable(0), data.elements()));
  bench::Timeline timeline("tcp");
  timeline.reserve(options.steps);
  timeline.ready();
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    if (writes) data.stamp(step);
    const std::int64_t begin = bench::now_ns();
    const Request request{step, bytes.size(), writes ? 1U : 0U};
    send_all(socket, std::as_bytes(std::span(&request, 1)));
    std::uint64_t checksum = 0;
    for (std::size_t offset = 0; offset < bytes.size(); offset += chunk_bytes) {
      const auto chunk = bytes.subspan(offset, std::min(chunk_bytes, bytes.size() - offset));
      if (!writes && !receive_all(socket, chunk)) failed("recv");
      if (options.checksums) checksum = forebay::crc32c(chunk, static_cast<std::uint32_t>(checksum));
      if (writes) send_all(socket, chunk);
    }
    const std::int64_t held = bench::now_ns();
    std::uint64_t theirs = 0;
    if (writes && !receive_all(socket, std::as_writable_bytes(std::span(&theirs, 1)))) failed("recv");
    if (writes && options.checksums && theirs != checksum) bench::give_up("bench_tcp: the checksums differ");
    timeline.add({begin, begin, held, bench::now_ns()});
  }
  timeline.set("closed_ns", static_cast<double>(bench::now_ns()));
  timeline.print();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("bench_tcp: steps over one TCP connection, as fast as it takes them");
  app.require_subcommand(1);
  CLI::App* serving = app.add_subcommand("serve", "take steps into a file, and send them from it, for one client");
  serving->add_option("--path", options.path)->required();
  CLI::App* writing = app.add_subcommand("write", "send steps");
  CLI::App* reading = app.add_subcommand("read", "ask for steps");
  for (CLI::App* command : {serving, writing, reading}) {
    command->add_option("--host", options.host)->required();
    command->add_option("--port", options.port);
    command->add_option("--bytes", options.bytes, "of one step")->required();
    command->add_flag("--checksums", options.checksums, "CRC-32C of all bytes, at either end");
  }
  serving->add_option("--slots", options.slots, "places in the file, used in turn");
  for (CLI::App* command : {writing, reading}) command->add_option("--steps", options.steps)->required();
  CLI11_PARSE(app, argc, argv);
  if (serving->parsed()) serve(options);
  if (writing->parsed()) run(options, true);
  if (reading->parsed()) run(options, false);
  return 0;
}
