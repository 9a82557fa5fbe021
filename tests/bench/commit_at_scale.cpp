// SPDX-License-Identifier: Apache-2.0
// What one step of very many ranks costs the home of a reservation over several servers: the ranks' messages, the
// record in the journal, the state, a checkpoint, a restart, and looking for what lay on a server that has lost its
// power. The code is the server's; only the ranks' parts are drawn, from a seed. Prints one line of JSON.
//
//     bench_commit_at_scale --ranks 100000 --members 64 --steps 10 --seed 1
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <forebay/protocol/messages_generated.h>

#include "base/device.h"
#include "protocol/message.h"
#include "protocol/unpacked.h"
#include "readers/step_descriptor.h"
#include "storage/journal.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/storage/stream_records.h"

namespace {

using namespace forebay;

struct Options {
  std::uint32_t ranks = 100'000;
  std::uint16_t members = 64;
  std::uint64_t steps = 10;
  std::uint64_t seed = 1;
};

template <class Value>
Value must(Result<Value> result) {
  if (!result) throw std::runtime_error(result.error().message());
  if constexpr (!std::is_void_v<Value>) return std::move(*result);
}

/// Milliseconds, of one step each.
class Times {
 public:
  template <class Work>
  auto take(Work&& work) {
    const auto begin = std::chrono::steady_clock::now();
    struct Taken {
      std::vector<double>& times;
      std::chrono::steady_clock::time_point begin;
      ~Taken() {
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
      }
    } taken{times_, begin};
    return work();
  }
  double median() {
    std::ranges::sort(times_);
    return times_.empty() ? 0 : times_[times_.size() / 2];
  }

 private:
  std::vector<double> times_;
};

double memory_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// Each rank has one block on another member, and its metadata on the home.
journal::StepCommittedT drawn_step(const storage::StreamState& state, const Options& options, std::mt19937_64& random) {
  journal::StepCommittedT step = storage::step_committed(state);
  for (auto& part : step.parts) {
    const auto member = static_cast<std::uint16_t>(1 + random() % (options.members - 1U));
    const std::uint64_t offset = random() % 16384 * 4096;
    part->metadata = {journal::Extent(0, 0, 0, std::uint64_t{part->rank} * 4096, part->metadata_bytes)};
    part->extents = {journal::Extent(0, 0, 0, std::uint64_t{part->rank} * 4096, 4096),
                     journal::Extent(1 + member * 64U, member, 0, offset, std::uint64_t{1} << 20)};
    part->members = {journal::MemberStorage(member + 1000U, member, 0, 0)};
  }
  return step;
}

wire::PartT message_of(const journal::PartT& part, std::uint64_t step) {
  wire::PartT message;
  message.step = step;
  message.metadata_bytes = part.metadata_bytes;
  message.metadata_crc = part.metadata_crc;
  for (const auto& extent : part.metadata)
    message.metadata.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
  for (const auto& extent : part.extents)
    message.extents.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
  for (const auto& member : part.members) message.members.emplace_back(member.incarnation(), member.member(), 0, 0);
  return message;
}

/// As readers are told of it.
std::size_t event_bytes(const journal::StepCommittedT& step) {
  wire::StepEventT event;
  event.step = std::make_unique<wire::StepDescriptorT>();
  event.step->summary = std::make_unique<wire::StepSummary>();
  for (const auto& part : step.parts) event.step->parts.push_back(server::reference_of(*part));
  return protocol::pack(event).size();
}

void run(const Options& options) {
  const testing::TemporaryDirectory directory;
  std::mt19937_64 random(options.seed);
  storage::StreamState state = storage::state_with_steps(0, options.ranks);
  flatbuffers::FlatBufferBuilder builder;
  auto journal = must(storage::Journal::create(posix_device(), directory.path(),
                                               storage::pack_body(builder, storage::checkpoint_of(state))));
  const double memory_before = memory_mib();
  Times messages;
  Times packing;
  Times appending;
  Times syncing;
  Times applying;
  std::size_t part_bytes = 0;
  std::size_t record_bytes = 0;
  std::size_t told_bytes = 0;
  for (std::uint64_t number = 0; number < options.steps; ++number) {
    journal::StepCommittedT step = drawn_step(state, options, random);
    const auto packed = protocol::pack(message_of(*step.parts.front(), step.step));
    part_bytes = packed.size();
    const auto bytes = std::as_bytes(std::span(packed.data(), packed.size()));
    const protocol::Message part{protocol::MessageType::part, 1, {bytes.begin(), bytes.end()}, {}};
    messages.take([&] {
      for (std::uint32_t rank = 0; rank < options.ranks; ++rank) (void)must(protocol::unpacked<wire::Part>(part));
    });
    const auto body = packing.take([&] { return storage::pack_body(builder, step); });
    record_bytes = body.size();
    if (number == 0) told_bytes = event_bytes(step);
    appending.take([&] { must(journal->append(storage::RecordType::step_committed, body)); });
    syncing.take([&] { must(journal->sync()); });
    applying.take([&] { must(state.apply(std::move(step))); });
  }
  const double memory_of_step = (memory_mib() - memory_before) / static_cast<double>(options.steps);

  // The home itself is no other member: all parts of all steps are looked at.
  Times looking;
  const bool any = looking.take([&] {
    const auto is_gone = [](const journal::MemberStorage& storage) { return storage.member() == 0; };
    return std::ranges::any_of(state.steps, [&](const auto& step) {
      return std::ranges::any_of(step.second.committed.parts,
                                 [&](const auto& part) { return std::ranges::any_of(part->members, is_gone); });
    });
  });
  if (any) throw std::runtime_error("the home counts as another member");
  Times checkpoints;
  const auto checkpoint = checkpoints.take([&] { return *state.checkpoint_body(); });
  journal.reset();
  Times starting;
  std::uint64_t replayed = 0;
  starting.take([&] {
    storage::StreamState read;
    storage::JournalRecovery recovery;
    (void)must(storage::Journal::open(
        posix_device(), directory.path(),
        [&](storage::RecordType type, std::span<const std::byte> body) { return read.apply(type, body); }, recovery));
    replayed = read.steps.size();
  });
  if (replayed != options.steps) throw std::runtime_error("not all steps are in the journal");
  fmt::print(
      R"({{"ranks": {}, "members": {}, "part_bytes": {}, "record_bytes": {}, "event_bytes": {}, "checkpoint_bytes": {}, )"
      R"("messages_ms": {:.1f}, "pack_ms": {:.1f}, "append_ms": {:.1f}, "sync_ms": {:.1f}, "apply_ms": {:.1f}, )"
      R"("memory_mib_per_step": {:.1f}, "look_ms_per_step": {:.1f}, "checkpoint_ms_per_step": {:.1f}, )"
      R"("replay_ms_per_step": {:.1f}}})"
      "\n",
      options.ranks, options.members, part_bytes, record_bytes, told_bytes, checkpoint.size(), messages.median(),
      packing.median(), appending.median(), syncing.median(), applying.median(), memory_of_step,
      looking.median() / static_cast<double>(options.steps), checkpoints.median() / static_cast<double>(options.steps),
      starting.median() / static_cast<double>(options.steps));
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  CLI::App app("What one step of very many ranks costs the home of a reservation over several servers.");
  app.add_option("--ranks", options.ranks, "of the writer group")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  app.add_option("--members", options.members, "servers of the reservation")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  app.add_option("--steps", options.steps, "steps that are committed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seed", options.seed, "of the draws")->capture_default_str();
  CLI11_PARSE(app, count, arguments);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_commit_at_scale: %s\n", error.what());
    return 1;
  }
  return 0;
}
