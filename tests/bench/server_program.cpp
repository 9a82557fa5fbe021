// SPDX-License-Identifier: Apache-2.0
// bench_server: forebayd with a disk that is as slow as it is told. It has forebayd's options, and is killed at the
// end.
#include <unistd.h>

#include <csignal>
#include <string>
#include <variant>

#include <CLI/CLI.hpp>

#include <forebay/address.h>

#include "daemon/server.h"
#include "daemon/settings.h"
#include "slow_device.h"
#include "timeline.h"

int main(int argc, char** argv) {
  forebay::server::Settings settings;
  settings.options.root = forebay::instance_root();
  bench::DiskSpeed speed;
  int ready_descriptor = -1;
  CLI::App app("bench_server: forebayd on a slow disk");
  for (const forebay::server::Setting& setting : forebay::server::settings_table(settings))
    std::visit([&](auto* value) { app.add_option(setting.option, *value, setting.help); }, setting.value);
  app.add_option("--write-bytes-per-second", speed.write_bytes_per_second, "what the disk takes");
  app.add_option("--cache-bytes", speed.cache_bytes, "how many of them may be on their way when a write returns");
  app.add_option("--sync-ms", speed.sync_ms, "how long each sync takes");
  app.add_option("--ready-fd", ready_descriptor, "descriptor to write \"ready\" to once clients can connect")
      ->required();
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  bench::SlowDevice disk(speed);
  auto server = forebay::server::Server::start(disk, settings.options);
  if (!server) bench::give_up("bench_server: " + server.error().message());
  if (::write(ready_descriptor, "ready\n", 6) != 6) bench::give_up("bench_server: nobody waits for it");
  ::close(ready_descriptor);
  (*server)->run();
  return 0;
}
