// SPDX-License-Identifier: Apache-2.0
// What the journal costs the server's one thread: an append, alone and beside syncs; a checkpoint; opening a stream of
// many steps. The journals lie in the system's temporary directory, TMPDIR.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <benchmark/benchmark.h>

#include "storage/journal.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/storage/stream_records.h"

namespace forebay::storage {
namespace {

constexpr std::uint64_t many_steps = 100'000;

const StreamState& large_state() {
  static const StreamState state = state_with_steps(many_steps);
  return state;
}

void append(benchmark::State& bench) {
  const testing::TemporaryDirectory directory;
  StreamState state = state_with_steps(0, static_cast<std::uint32_t>(bench.range(0)));
  flatbuffers::FlatBufferBuilder builder;
  auto journal = Journal::create(posix_device(), directory.path(), pack_body(builder, checkpoint_of(state)));
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> syncs{0};
  std::thread syncing;
  if (bench.range(1) != 0) {
    syncing = std::thread([&] {
      while (!done && (*journal)->sync()) ++syncs;
    });
  }
  const auto body = pack_body(builder, step_committed(state));
  std::int64_t longest_ns = 0;
  for ([[maybe_unused]] auto _ : bench) {
    const auto start = std::chrono::steady_clock::now();
    if (!(*journal)->append(RecordType::step_committed, body)) bench.SkipWithError("append failed");
    longest_ns =
        std::max<std::int64_t>(longest_ns, std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
  }
  done = true;
  if (syncing.joinable()) syncing.join();
  bench.counters["body_bytes"] = static_cast<double>(body.size());
  bench.counters["longest_us"] = static_cast<double>(longest_ns) / 1000;
  bench.counters["syncs"] = static_cast<double>(syncs.load());
}
BENCHMARK(append)->ArgNames({"ranks", "syncing"})->Args({1, 0})->Args({1, 1})->Args({64, 0})->Iterations(50'000);

void make_checkpoint(benchmark::State& bench) {
  const StreamState& state = large_state();
  for ([[maybe_unused]] auto _ : bench) {
    benchmark::DoNotOptimize(state.checkpoint_body()->data());
  }
}
BENCHMARK(make_checkpoint)->Unit(benchmark::kMillisecond);

void roll(benchmark::State& bench) {
  const testing::TemporaryDirectory directory;
  flatbuffers::FlatBufferBuilder builder;
  const auto checkpoint = pack_body(builder, checkpoint_of(large_state()));
  auto journal = Journal::create(posix_device(), directory.path(), checkpoint);
  for ([[maybe_unused]] auto _ : bench) {
    if (!(*journal)->roll(checkpoint)) bench.SkipWithError("roll failed");
  }
  bench.counters["checkpoint_bytes"] = static_cast<double>(checkpoint.size());
}
BENCHMARK(roll)->Unit(benchmark::kMillisecond)->UseRealTime();

/// From one checkpoint, or from a commit record for each step.
void open(benchmark::State& bench) {
  const testing::TemporaryDirectory directory;
  flatbuffers::FlatBufferBuilder builder;
  if (bench.range(0) != 0) {
    (void)Journal::create(posix_device(), directory.path(), pack_body(builder, checkpoint_of(large_state())));
  } else {
    StreamState state = state_with_steps(0);
    auto journal = Journal::create(posix_device(), directory.path(), pack_body(builder, checkpoint_of(state)));
    for (std::uint64_t step = 0; step < many_steps; ++step) {
      auto record = step_committed(state);
      (void)(*journal)->append(RecordType::step_committed, pack_body(builder, record));
      (void)state.apply(std::move(record));
    }
  }
  for ([[maybe_unused]] auto _ : bench) {
    StreamState state;
    JournalRecovery recovery;
    auto journal = Journal::open(
        posix_device(), directory.path(),
        [&](RecordType type, std::span<const std::byte> body) { return state.apply(type, body); }, recovery);
    if (!journal || state.steps.size() != many_steps) bench.SkipWithError("open failed");
  }
}
BENCHMARK(open)->ArgName("checkpoint")->Arg(1)->Arg(0)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace forebay::storage
