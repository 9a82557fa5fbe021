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
#include <variant>

#include <CLI/CLI.hpp>

#include <forebay/address.h>

#include "base/log.h"
#include "daemon/server.h"
#include "daemon/settings.h"
#include "daemon/version.h"

namespace {

using forebay::server::Server;

struct CommandLine {
  forebay::server::Settings settings;
  std::string config;
  int ready_descriptor = -1;
};

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
  forebay::server::Settings& settings = line.settings;
  if (settings.control_encryption != "on" && settings.control_encryption != "off") {
    std::fprintf(stderr, "forebayd: control_encryption is \"on\" or \"off\", not \"%s\"\n",
                 settings.control_encryption.c_str());
    return 2;
  }
  settings.options.encrypts_control = settings.control_encryption == "on";
  const auto level = forebay::log::parse_level(settings.log_level);
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
  auto server = Server::start(forebay::posix_device(), settings.options);
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
  line.settings.options.root = forebay::instance_root();
  const auto table = forebay::server::settings_table(line.settings);
  CLI::App app(
      "forebayd - Forebay's staging server of one node.\nExample: forebayd --root /ssd/forebay --capacity 2147483648");
  for (const forebay::server::Setting& setting : table) {
    std::visit([&](auto* value) { app.add_option(setting.option, *value, setting.help); }, setting.value);
  }
  app.add_option("--config", line.config,
                 "TOML file with the same settings: " + forebay::server::setting_names(table) +
                     "; the command line goes before it");
  app.add_option("--ready-fd", line.ready_descriptor, "Descriptor to write \"ready\" to once clients can connect");
  app.set_version_flag("--version", std::string("forebayd ") + forebay::server::version_text);
  CLI11_PARSE(app, argc, argv);
  if (!line.config.empty()) {
    const auto is_given = [&app](const forebay::server::Setting& setting) { return app.count(setting.option) > 0; };
    if (auto read = forebay::server::read_settings(line.config, table, is_given); !read) {
      std::fprintf(stderr, "forebayd: %s\n", read.error().message().c_str());
      return 2;
    }
  }
  return serve(line);
}
