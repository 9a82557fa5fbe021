// SPDX-License-Identifier: Apache-2.0
// bench_native: the same steps through Forebay's own client, by put or computed in place, and what checksum and
// statistics of bytes in memory cost by themselves.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <forebay/address.h>
#include <forebay/checksum.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

#include "client/segments/client_device.h"
#include "client/writing/statistics.h"
#include "slow_device.h"
#include "timeline.h"

namespace {

struct Options {
  std::string address;
  std::string retention;
  std::size_t variables = 1;
  std::size_t bytes = 0;
  std::uint64_t steps = 0;
  std::int64_t pace_us = 0;
  bool allocate = false;
  bool views = false;
  bench::DiskSpeed disk;
  /// Each rank writes, or reads, its own part of each variable; a writer takes rank and ranks from here, too.
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  forebay::WriterOptions writer;
  forebay::ReaderOptions reader;
};

template <class T>
T value_of(forebay::Result<T> result, const char* call) {
  if (!result) bench::give_up(std::string("bench_native: ") + call + ": " + result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

void write(Options options) {
  bench::StepData data(options.variables, options.bytes);
  bench::Timeline timeline("native");
  timeline.reserve(options.steps);
  if (!options.retention.empty())
    options.writer.retention = value_of(forebay::parse_retention(options.retention), "retention");
  bench::SlowDevice disk(options.disk);
  if (options.disk.write_bytes_per_second > 0) forebay::client::set_client_device(disk);
  options.writer.rank = options.rank;
  options.writer.ranks = options.ranks;
  const auto address = value_of(forebay::parse_address(options.address), "address");
  const auto writer = value_of(forebay::Writer::open(address, options.writer), "open");
  const std::vector<std::uint64_t> shape{options.ranks * data.elements()};
  const std::vector<std::uint64_t> start{options.rank * data.elements()};
  const std::vector<std::uint64_t> count{data.elements()};
  const auto block = [&](std::size_t variable) {
    return forebay::BlockSpec{
        data.name(variable), forebay::DataType::float64, forebay::ShapeKind::global_array, shape, start, count, {}, {}};
  };
  timeline.ready();
  std::int64_t due = bench::now_ns();
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    data.stamp(step);
    if (options.pace_us > 0) bench::wait_until_ns(due);
    due = std::max(due + options.pace_us * 1000, bench::now_ns());
    bench::Moments moments{};
    moments[0] = bench::now_ns();
    value_of(writer->begin_step(), "begin_step");
    moments[1] = bench::now_ns();
    std::vector<forebay::Writer::Allocation> allocations;
    for (std::size_t i = 0; i < data.variables(); ++i) {
      if (options.allocate) {
        allocations.push_back(value_of(writer->allocate(block(i)), "allocate"));
        // Stands for the program's arithmetic, which would write its results here.
        std::ranges::copy(std::as_bytes(std::span(data.variable(i), data.elements())),
                          allocations.back().bytes.begin());
      } else {
        value_of(writer->put(block(i), data.variable(i)), "put");
      }
    }
    moments[2] = bench::now_ns();
    value_of(writer->end_step(), "end_step");
    moments[3] = bench::now_ns();
    timeline.add(moments);
  }
  value_of(writer->close(), "close");
  timeline.set("closed_ns", static_cast<double>(bench::now_ns()));
  timeline.print();
}

void read(const Options& options) {
  bench::StepData data(options.variables, options.bytes);
  bench::Timeline timeline("native");
  timeline.reserve(options.steps);
  const auto address = value_of(forebay::parse_address(options.address), "address");
  const auto reader = value_of(forebay::Reader::open(address, options.reader), "open");
  const forebay::Box box{{options.rank * data.elements()}, {data.elements()}};
  timeline.ready();
  while (true) {
    bench::Moments moments{};
    moments[0] = bench::now_ns();
    forebay::NextStep next = value_of(reader->next(-1), "next");
    moments[1] = bench::now_ns();
    if (next.kind == forebay::NextStep::Kind::end_of_stream) break;
    if (next.kind != forebay::NextStep::Kind::step) continue;
    for (std::size_t i = 0; i < data.variables(); ++i) {
      const forebay::VariableInfo* variable = next.step->find(data.name(i));
      if (variable == nullptr) bench::give_up("bench_native: a variable is missing");
      if (options.views) {
        const auto view = value_of(next.step->view(*variable, box), "view");
        data.variable(i)[0] = reinterpret_cast<const double*>(view.data)[0];
      } else {
        value_of(next.step->read(*variable, box, data.variable(i)), "read");
      }
    }
    moments[2] = bench::now_ns();
    if (!options.views) data.check(next.step->number());
    next.step.reset();
    moments[3] = bench::now_ns();
    timeline.add(moments);
  }
  timeline.print();
}

// One pass of checksum and statistics over bytes that were written just before, as after an allocate.
void digest(const Options& options) {
  bench::StepData data(1, options.bytes);
  bench::Timeline timeline("digest");
  timeline.ready();
  constexpr std::size_t chunk_bytes = std::size_t{256} << 10;
  std::uint32_t checksum = 0;
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    data.stamp(step);
    const std::int64_t begin = bench::now_ns();
    forebay::client::MinMax min_max(forebay::DataType::float64);
    auto bytes = std::as_bytes(std::span(data.variable(0), data.elements()));
    while (!bytes.empty()) {
      const auto chunk = bytes.first(std::min(chunk_bytes, bytes.size()));
      checksum = forebay::crc32c(chunk, checksum);
      min_max.add(chunk);
      bytes = bytes.subspan(chunk.size());
    }
    const std::int64_t end = bench::now_ns();
    timeline.add({begin, begin, begin, end});
  }
  timeline.set("checksum", checksum);
  timeline.print();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("bench_native: writes and reads steps through Forebay's client");
  app.require_subcommand(1);
  CLI::App* writing = app.add_subcommand("write", "write steps");
  writing->add_option("--address", options.address)->required();
  writing->add_option("--variables", options.variables);
  writing->add_option("--retention", options.retention);
  writing->add_option("--pace-us", options.pace_us, "from the begin of one step to the next");
  writing->add_option("--readers", options.writer.rendezvous_readers);
  writing->add_flag("--allocate", options.allocate, "compute in place");
  writing->add_flag_callback(
      "--durable", [&] { options.writer.durability = forebay::Durability::durable; }, "wait for each step's sync");
  writing->add_option("--write-bytes-per-second", options.disk.write_bytes_per_second,
                      "what a disk takes of blocks that are written on its own node");
  writing->add_flag("!--without-checksums", options.writer.checksums);
  writing->add_flag("!--without-statistics", options.writer.statistics);
  CLI::App* reading = app.add_subcommand("read", "follow until the end of the stream");
  reading->add_option("--address", options.address)->required();
  reading->add_option("--variables", options.variables);
  reading->add_flag("--views", options.views, "map instead of copying");
  reading->add_option("--verify", options.reader.verify)
      ->transform(CLI::Transformer(std::map<std::string, forebay::Verify>{{"auto", forebay::Verify::automatic},
                                                                          {"none", forebay::Verify::none},
                                                                          {"first", forebay::Verify::first},
                                                                          {"read", forebay::Verify::read}}));
  CLI::App* digesting = app.add_subcommand("digest", "checksum and statistics of bytes in memory");
  for (CLI::App* command : {writing, reading, digesting})
    command->add_option("--bytes", options.bytes, "of one variable")->required();
  for (CLI::App* command : {writing, reading}) {
    command->add_option("--rank", options.rank, "whose part of each variable");
    command->add_option("--ranks", options.ranks);
  }
  for (CLI::App* command : {writing, digesting}) command->add_option("--steps", options.steps)->required();
  CLI11_PARSE(app, argc, argv);
  if (writing->parsed()) write(options);
  if (reading->parsed()) read(options);
  if (digesting->parsed()) digest(options);
  return 0;
}
