// SPDX-License-Identifier: Apache-2.0
// bench_raw: the limits that Forebay is compared with: the same bytes by pwrite and pread, without any engine.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <CLI/CLI.hpp>

#include "timeline.h"

namespace {

struct Options {
  std::string path;
  std::size_t bytes = 0;
  std::uint64_t steps = 0;
  std::size_t chunk_bytes = 0;
  bool sync = false;
};

[[noreturn]] void failed(const std::string& call) {
  bench::give_up("bench_raw: " + call + ": " + std::strerror(errno));
}

void write_all(int file, std::span<const std::byte> bytes, std::uint64_t offset, std::size_t chunk_bytes) {
  while (!bytes.empty()) {
    const std::size_t chunk = chunk_bytes == 0 ? bytes.size() : std::min(chunk_bytes, bytes.size());
    const ssize_t written = ::pwrite(file, bytes.data(), chunk, static_cast<off_t>(offset));
    if (written <= 0) failed("pwrite");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

// One fresh file, each step behind the one before.
void write(const Options& options) {
  bench::StepData data(1, options.bytes);
  bench::Timeline timeline("raw");
  timeline.reserve(options.steps);
  const int file = ::open(options.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) failed("open " + options.path);
  timeline.ready();
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    data.stamp(step);
    const std::int64_t begin = bench::now_ns();
    write_all(file, std::as_bytes(std::span(data.variable(0), data.elements())), step * data.bytes(),
              options.chunk_bytes);
    const std::int64_t put = bench::now_ns();
    if (options.sync && ::fdatasync(file) != 0) failed("fdatasync");
    timeline.add({begin, begin, put, bench::now_ns()});
  }
  ::close(file);
  timeline.set("closed_ns", static_cast<double>(bench::now_ns()));
  timeline.print();
}

void read(const Options& options) {
  bench::Buffer buffer(options.bytes);
  bench::Timeline timeline("raw");
  const int file = ::open(options.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) failed("open " + options.path);
  timeline.ready();
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    const std::int64_t begin = bench::now_ns();
    std::span<std::byte> rest = buffer.bytes();
    std::uint64_t offset = step * options.bytes;
    while (!rest.empty()) {
      const ssize_t got = ::pread(file, rest.data(), rest.size(), static_cast<off_t>(offset));
      if (got <= 0) failed("pread");
      rest = rest.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    const std::int64_t held = bench::now_ns();
    timeline.add({begin, begin, held, held});
  }
  ::close(file);
  timeline.print();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("bench_raw: pwrite and pread as fast as the file system takes them");
  app.require_subcommand(1);
  CLI::App* writing = app.add_subcommand("write", "steps into a fresh file");
  writing->add_option("--chunk-bytes", options.chunk_bytes, "bytes of one pwrite; 0: the whole step");
  writing->add_flag("--sync", options.sync, "fdatasync after each step");
  CLI::App* reading = app.add_subcommand("read", "steps of a file, each once");
  for (CLI::App* command : {writing, reading}) {
    command->add_option("--path", options.path)->required();
    command->add_option("--bytes", options.bytes, "of one step")->required();
    command->add_option("--steps", options.steps)->required();
  }
  CLI11_PARSE(app, argc, argv);
  if (writing->parsed()) write(options);
  if (reading->parsed()) read(options);
  return 0;
}
