// SPDX-License-Identifier: Apache-2.0
// A client that gets no memory, whichever allocation of a call it is: the call says so, the program lives, and the
// stream is whole.
#include "tests/unit/client/failing_memory.h"

#include <functional>

#include "base/clock.h"
#include "tests/unit/client/numbered_content.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"
#include "tests/unit/client/sweep.h"

namespace forebay::testing {
namespace {

class FailingMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(server_.start());
    ASSERT_OK(server_.create("res", std::uint64_t{8} << 20));
    writer_options_.mode = WriteMode::append;
    writer_options_.retention = Retention{.last = 3, .consumers = {}, .precious_every = 0};
    writer_options_.interrupt = patience();
    reader_options_.interrupt = patience();
    reader_options_.consumer = "render";
  }
  static InterruptHook patience() {
    return [deadline = Deadline::after_ms(60'000)] { return deadline.passed(); };
  }

  std::unique_ptr<Writer> writer() {
    auto opened = Writer::open(address_, writer_options_);
    EXPECT_TRUE(opened) << opened.error().message();
    return opened ? std::move(*opened) : nullptr;
  }
  void write_whole_step(Writer& writer) {
    ASSERT_OK(writer.begin_step());
    ASSERT_OK(put_content(writer, ++content_));
    ASSERT_OK(writer.end_step());
  }
  /// The steps that there are can be read and are those that were sent.
  void check_stream() {
    ReaderOptions options;
    options.follow = false;
    auto reader = Reader::open(address_, options);
    ASSERT_OK(reader);
    const auto steps = (*reader)->steps();
    ASSERT_OK(steps);
    for (const StepSummary& summary : *steps) {
      const auto step = (*reader)->step(summary.step);
      ASSERT_OK(step);
      ASSERT_OK((*step)->verify());
      const auto content = content_of(**step);
      ASSERT_OK(content);
      EXPECT_LE(*content, content_);
    }
  }
  /// False if the call needs fewer than n allocations.
  static bool fails_at(std::uint64_t n, bool lasting, const std::function<Result<void>()>& call) {
    Result<void> result;
    try {
      const FailingMemory memory(n, lasting);
      result = call();
    } catch (const std::bad_alloc&) {
      return true;
    }
    if (!result) {
      EXPECT_NE(result.error().code, ErrorCode::cancelled) << "it waited for ever";
    }
    return FailingMemory::has_failed();
  }

  const Address address_{"res", "flow", std::nullopt};
  ServerOnDisk server_;
  WriterOptions writer_options_;
  ReaderOptions reader_options_;
  std::uint64_t content_ = 0;
};

// crash-matrix: no memory | writer, any allocation of begin_step, put or end_step, once or from then on | every committed step; the step is there whole or not at all; a new writer goes on
TEST_F(FailingMemoryTest, in_a_writer_leaves_the_stream_whole) {
  sweep(150, 200, [&](std::uint64_t n, Random& random) {
    auto writing = writer();
    write_whole_step(*writing);
    const std::uint64_t content = ++content_;
    const bool failed = fails_at(n, chance(random, 2), [&]() -> Result<void> {
      if (auto begun = writing->begin_step(); !begun) return fail(begun.error());
      if (auto put = put_content(*writing, content); !put) return put;
      return writing->end_step();
    });
    // Where the failure has cost an answer the connection is given up, and the group with it; else the writer goes on.
    if (writing->in_step() && !writing->abort_step()) (void)writing->end_step();
    if (const auto begun = writing->begin_step(); begun) {
      EXPECT_TRUE(put_content(*writing, ++content_));
      EXPECT_TRUE(writing->end_step());
    } else {
      EXPECT_EQ(begun.error().code, ErrorCode::group_broken) << begun.error().message();
    }
    writing.reset();
    check_stream();
    write_whole_step(*writer());
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation of next, of reading a step or of letting go of it, once or from then on | the stream; another reader goes on at the cursor
TEST_F(FailingMemoryTest, in_a_reader_leaves_the_stream_whole) {
  sweep(150, 200, [&](std::uint64_t n, Random& random) {
    write_whole_step(*writer());
    auto opened = Reader::open(address_, reader_options_);
    EXPECT_TRUE(opened) << opened.error().message();
    if (!opened) return false;
    const bool failed = fails_at(n, chance(random, 2), [&]() -> Result<void> {
      auto next = (*opened)->next(10'000);
      while (next && next->kind == NextStep::Kind::notice) next = (*opened)->next(10'000);
      if (!next) return fail(next.error());
      if (next->kind != NextStep::Kind::step) return {};
      auto content = content_of(*next->step);
      if (!content) return fail(content.error());
      return (*opened)->acknowledge(*next->step);
    });
    // The same reader goes on, unless the server has not seen yet that it gave its connection up.
    write_whole_step(*writer());
    auto next = (*opened)->next(10'000);
    while (next && next->kind == NextStep::Kind::notice) next = (*opened)->next(10'000);
    if (next) {
      EXPECT_TRUE(next->step && content_of(*next->step));
    } else {
      EXPECT_EQ(next.error().code, ErrorCode::busy) << next.error().message();
    }
    opened->reset();
    check_stream();
    return failed;
  });
}

}  // namespace
}  // namespace forebay::testing
