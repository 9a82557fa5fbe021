// SPDX-License-Identifier: Apache-2.0
// forebay_load: writers and readers for the fault tests, as single processes that start in milliseconds. Says what
// happens as JSON lines on standard output. Exit status: 0 well, 1 a call failed, 2 no step came in time, 3 a promise
// was broken.
#include <cstdio>
#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include <forebay/address.h>

#include "read.h"
#include "write.h"

namespace {

using forebay::load::ReadOptions;
using forebay::load::WriteOptions;

struct Texts {
  std::string address;
  std::string retention;
  std::string start = "cursor";
};

void add_write_options(CLI::App& command, WriteOptions& options, Texts& texts) {
  auto& writer = options.writer;
  command.add_option("ADDRESS", texts.address)->required();
  command.add_option("--rank", writer.rank);
  command.add_option("--ranks", writer.ranks);
  command.add_option("--group", writer.group);
  command.add_option("--mode", writer.mode)
      ->transform(CLI::Transformer(std::map<std::string, forebay::WriteMode>{{"w", forebay::WriteMode::replace},
                                                                             {"a", forebay::WriteMode::append}}));
  command.add_option("--append-after", writer.append_after);
  command.add_option("--retention", texts.retention);
  command.add_option("--when-full", writer.when_full)
      ->transform(
          CLI::Transformer(std::map<std::string, forebay::WhenFull>{{"block", forebay::WhenFull::block},
                                                                    {"drop-oldest", forebay::WhenFull::drop_oldest},
                                                                    {"error", forebay::WhenFull::error}}));
  command.add_option("--durability", writer.durability)
      ->transform(CLI::Transformer(std::map<std::string, forebay::Durability>{
          {"committed", forebay::Durability::committed}, {"durable", forebay::Durability::durable}}));
  command.add_flag("--force", writer.force);
  command.add_flag("!--no-checksums", writer.checksums);
  command.add_option("--readers", writer.rendezvous_readers);
  command.add_option("--block-timeout-ms", writer.block_timeout_ms);
  command.add_option("--lag-limit", writer.lag_limit);
  command.add_option("--open-timeout-ms", writer.open_timeout_ms);
  command.add_option("--reconnect-timeout-ms", writer.reconnect_timeout_ms);
  command.add_option("--grace-ms", writer.grace_ms);
  command.add_option("--steps", options.steps);
  command.add_option("--variables", options.shape.variables);
  command.add_option("--elements", options.shape.elements);
  command.add_flag("--varying", options.shape.varying);
  command.add_option("--pause-us", options.pause_us);
  command.add_option("--attempts", options.attempts);
  command.add_flag("--commands", options.commands);
}

void add_read_options(CLI::App& command, ReadOptions& options, Texts& texts) {
  auto& reader = options.reader;
  command.add_option("ADDRESS", texts.address)->required();
  command.add_option("--consumer", reader.consumer);
  command.add_option("--start", texts.start);
  command.add_option("--watermark", reader.min_watermark)
      ->transform(CLI::Transformer(std::map<std::string, forebay::Watermark>{
          {"committed", forebay::Watermark::committed}, {"durable", forebay::Watermark::durable}}));
  command.add_option("--distribution", reader.distribution)
      ->transform(CLI::Transformer(
          std::map<std::string, forebay::StepDistribution>{{"all-to-all", forebay::StepDistribution::all_to_all},
                                                           {"round-robin", forebay::StepDistribution::round_robin},
                                                           {"on-demand", forebay::StepDistribution::on_demand}}));
  command.add_option("--rank", reader.rank);
  command.add_option("--ranks", reader.ranks);
  command.add_option("--group", reader.group);
  command.add_flag("--latest", reader.latest_only);
  command.add_option("--open-timeout-ms", reader.open_timeout_ms);
  command.add_option("--reconnect-timeout-ms", reader.reconnect_timeout_ms);
  command.add_option("--steps", options.steps);
  command.add_option("--hold", options.hold);
  command.add_flag("--ack", options.acknowledge);
  command.add_flag("!--unordered", options.ordered);
  command.add_option("--timeout-ms", options.timeout_ms);
  command.add_flag("--unchecked", options.unchecked);
  command.add_flag_callback("--losses", [&options] { options.losses = forebay::load::Losses::happen; });
  command.add_flag("--commands", options.commands);
}

int usage_error(const forebay::Error& error) {
  std::fprintf(stderr, "forebay_load: %s\n", error.message().c_str());
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("forebay_load - writes and reads streams whose content can be checked");
  app.require_subcommand(1);
  WriteOptions write;
  ReadOptions read;
  Texts texts;
  auto* writing = app.add_subcommand("write", "One rank of a writer group");
  auto* following = app.add_subcommand("follow", "Follows a stream and checks each step");
  auto* checking = app.add_subcommand("check", "Checks every kept step");
  write.writer.ranks_source = read.reader.ranks_source = "--ranks";
  add_write_options(*writing, write, texts);
  add_read_options(*following, read, texts);
  add_read_options(*checking, read, texts);
  CLI11_PARSE(app, argc, argv);

  auto address = forebay::parse_address(texts.address);
  if (!address) return usage_error(address.error());
  write.address = read.address = *address;
  if (*writing) {
    if (!texts.retention.empty()) {
      auto retention = forebay::parse_retention(texts.retention);
      if (!retention) return usage_error(retention.error());
      write.writer.retention = *retention;
    }
    write.shape.ranks = write.writer.ranks;
    return forebay::load::write_stream(write);
  }
  auto start = forebay::parse_start(texts.start);
  if (!start) return usage_error(start.error());
  read.reader.start = *start;
  return *following ? forebay::load::follow_stream(read) : forebay::load::check_stream(read);
}
