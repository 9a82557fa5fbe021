// SPDX-License-Identifier: Apache-2.0
// forebayd: the staging server of one node. Stays in the foreground; `forebay up` puts it in the background.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include <forebay/address.h>

#include "base/log.h"
#include "daemon/config_file.h"
#include "daemon/server.h"
#include "daemon/version.h"

namespace {

using forebay::server::Server;
using forebay::server::ServerOptions;

struct CommandLine {
  ServerOptions options;
  std::string config;
  std::string control_encryption = "on";
  std::string log_level = "info";
  int ready_descriptor = -1;
};

/// What the file says holds where the command line is silent.
forebay::Result<void> add_config(CommandLine& line, const CLI::App& app) {
  auto config = forebay::server::read_config(line.config);
  if (!config) return forebay::fail(std::move(config.error()));
  const auto add = [&app](const char* option, const auto& setting, auto& value) {
    if (setting && app.count(option) == 0) value = *setting;
  };
  add("--root", config->root, line.options.root);
  add("--socket", config->socket, line.options.socket_path);
  add("--listen", config->listen, line.options.listen);
  add("--fabric", config->fabric, line.options.fabric);
  add("--control-encryption", config->control_encryption, line.control_encryption);
  add("--files-image", config->files_image, line.options.files_image);
  add("--capacity", config->capacity_bytes, line.options.capacity_bytes);
  add("--flush-interval-ms", config->flush_interval_ms, line.options.flush_interval_ms);
  add("--restart-grace-ms", config->restart_grace_ms, line.options.restart_grace_ms);
  add("--log-level", config->log_level, line.log_level);
  return {};
}

/// Each client holds descriptors of segments: the soft limit is often too low, the hard one rarely.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Ends the server as any other death would: without memory nothing can be answered, and no error be put together.
[[noreturn]] void end_without_memory() {
  constexpr std::string_view text =
      "forebayd: out of memory, ending; committed steps are safe and clients wait: start it again with more memory\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) ::_exit(2);
  ::_exit(1);
}

forebay::Result<int> block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const int descriptor = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor < 0)
    return forebay::fail(forebay::ErrorCode::io_error, std::string("cannot take signals: ") + std::strerror(errno));
  return descriptor;
}

int serve(CommandLine& line) {
  if (line.control_encryption != "on" && line.control_encryption != "off") {
    std::fprintf(stderr, "forebayd: control_encryption is \"on\" or \"off\", not \"%s\"\n",
                 line.control_encryption.c_str());
    return 2;
  }
  line.options.encrypts_control = line.control_encryption == "on";
  const auto level = forebay::log::parse_level(line.log_level);
  if (!level) {
    std::fprintf(stderr, "forebayd: %s\n", level.error().message().c_str());
    return 2;
  }
  forebay::log::set_level(*level);
  raise_descriptor_limit();
  std::set_new_handler(end_without_memory);
  auto signals = block_signals();
  if (!signals) {
    std::fprintf(stderr, "forebayd: %s\n", signals.error().message().c_str());
    return 1;
  }
  auto server = Server::start(forebay::posix_device(), line.options);
  if (!server) {
    std::fprintf(stderr, "forebayd: %s\n", server.error().message().c_str());
    return 1;
  }
  Server& running = **server;
  auto watched = running.loop().watch(*signals, EPOLLIN, [&running, descriptor = *signals](std::uint32_t) {
    running.loop().forget(descriptor);
    forebay::log::info("asked to end");
    running.stop();
  });
  if (!watched) {
    std::fprintf(stderr, "forebayd: %s\n", watched.error().message().c_str());
    return 1;
  }
  if (line.ready_descriptor >= 0) {
    if (::write(line.ready_descriptor, "ready\n", 6) != 6)
      forebay::log::warning("nobody listens for readiness on descriptor {}", line.ready_descriptor);
    ::close(line.ready_descriptor);
  }
  running.run();
  if (auto flushed = running.flush_everything(); !flushed) {
    forebay::log::error("not everything could be made durable: {}", flushed.error().message());
    return 1;
  }
  forebay::log::info("ended; everything committed is durable");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  line.options.root = forebay::instance_root();
  CLI::App app(
      "forebayd - Forebay's staging server of one node.\nExample: forebayd --root /ssd/forebay --capacity 2147483648");
  app.add_option("--root", line.options.root,
                 "Where reservations lie; default $FOREBAY_ROOT or the user's state directory");
  app.add_option("--socket", line.options.socket_path, "Path of the socket; default ROOT/forebayd.sock");
  app.add_option("--listen", line.options.listen,
                 "HOST:PORT, an address of this node, for clients on other nodes; without it no port is open");
  app.add_option("--fabric", line.options.fabric,
                 "Provider of libfabric (tcp, verbs, cxi, efa) for the data of clients that ask for it; opens ports");
  app.add_option("--control-encryption", line.control_encryption,
                 "off: messages of clients on other nodes are not encrypted after their proof; default on");
  app.add_option("--files-image", line.options.files_image,
                 "xfs: files/ of each reservation is a file system of its own, as large as was granted; needs root");
  app.add_option("--capacity", line.options.capacity_bytes,
                 "Bytes that may be handed out; default 80 % of the free space at the first start");
  app.add_option("--flush-interval-ms", line.options.flush_interval_ms,
                 "How long a committed step may wait to become durable; negative: until somebody asks");
  app.add_option("--restart-grace-ms", line.options.restart_grace_ms,
                 "How long writers have to come back after a restart of the server");
  app.add_option("--config", line.config,
                 "TOML file with the same settings: root, socket, listen, fabric, "
                 "control_encryption, files_image, capacity_bytes, flush_interval_ms, restart_grace_ms, log_level");
  app.add_option("--log-level", line.log_level, "debug, info, warning or error");
  app.add_option("--ready-fd", line.ready_descriptor, "Descriptor to write \"ready\" to once clients can connect");
  app.set_version_flag("--version", std::string("forebayd ") + forebay::server::version_text);
  CLI11_PARSE(app, argc, argv);
  if (!line.config.empty()) {
    if (auto added = add_config(line, app); !added) {
      std::fprintf(stderr, "forebayd: %s\n", added.error().message().c_str());
      return 2;
    }
  }
  return serve(line);
}
