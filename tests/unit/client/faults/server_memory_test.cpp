// SPDX-License-Identifier: Apache-2.0
// A server that gets no memory, whichever allocation it is, ends; the next one goes on as after any other death.
#include <chrono>
#include <future>
#include <utility>

#include "tests/unit/client/faults/sweep.h"
#include "tests/unit/client/numbered_content.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class ServerMemory : public StreamTest {
 protected:
  /// Returns what `work` does. A server that ends meanwhile is started again; notes whether one did.
  Result<void> with_servers(const std::function<Result<void>()>& work) {
    auto working = std::async(std::launch::async, work);
    while (working.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      if (!server_.has_ended()) continue;
      ended_ = true;
      server_.start();
    }
    return working.get();
  }
  static Result<void> write(Writer& writer, std::uint64_t content) {
    if (auto begun = writer.begin_step(); !begun) return fail(std::move(begun.error()));
    if (auto put = put_content(writer, content); !put) return put;
    return writer.end_step();
  }
  /// The next step, whole, which is acknowledged.
  static Result<std::pair<std::uint64_t, std::uint64_t>> take(Reader& reader) {
    auto next = reader.next(60'000);
    while (next && next->kind == NextStep::Kind::notice) next = reader.next(60'000);
    if (!next) return fail(std::move(next.error()));
    if (next->kind != NextStep::Kind::step) return fail(ErrorCode::timeout, "no step comes: " + next->text);
    const auto content = content_of(*next->step);
    if (!content) return fail(content.error());
    if (auto done = reader.acknowledge(*next->step); !done) return fail(std::move(done.error()));
    return std::pair{next->step->number(), *content};
  }

  bool ended_ = false;
};

// crash-matrix: no memory | server, any allocation of any of its threads from the first client that comes back on, while steps are written, made durable, dropped, read and acknowledged | it ends; every step once, with its content, to clients that go on with the next server
TEST_F(ServerMemory, that_runs_out_is_a_death_like_any_other) {
  WriterOptions writer_options;
  writer_options.durability = Durability::durable;
  writer_options.retention = Retention{.last = 3, .consumers = {"render"}, .precious_every = 0};
  // Anew for each death: there are many, and a sanitizer makes each take its time.
  InterruptHook patience = end_of_patience();
  const InterruptHook out_of_patience = [&patience] { return patience(); };
  writer_options.interrupt = out_of_patience;
  ReaderOptions reader_options;
  reader_options.consumer = "render";
  reader_options.interrupt = out_of_patience;
  auto writer = open_writer(writer_options);
  auto reader = open_reader(reader_options);
  std::uint64_t steps = 0;
  int without_death = 0;
  sweep(65, [&](std::uint64_t n, Random& random) {
    server_.kill();
    server_.start(n);
    ended_ = false;
    patience = end_of_patience();
    const std::uint64_t content = 1 + random() % 1000;
    const auto done = with_servers([&]() -> Result<void> {
      if (auto written = write(*writer, content); !written) return written;
      auto taken = take(*reader);
      if (!taken) return fail(std::move(taken.error()));
      EXPECT_EQ(taken->first, steps);
      EXPECT_EQ(taken->second, content);
      return {};
    });
    EXPECT_TRUE(done) << done.error().message();
    ++steps;
    // Threads take turns as they like: it may die a moment after the work is done, of an allocation that comes late.
    without_death = ended_ ? 0 : without_death + 1;
    return without_death < 5;
  });
  server_.kill();
  server_.start();
  const auto kept = open_reader()->steps();
  ASSERT_OK(kept);
  EXPECT_GE(kept->size(), 3U);
  EXPECT_EQ(kept->back().step, steps - 1);
}

}  // namespace
}  // namespace forebay::testing
