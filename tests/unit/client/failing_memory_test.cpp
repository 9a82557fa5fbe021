// SPDX-License-Identifier: Apache-2.0
// A client that gets no memory, whichever allocation of a call it is: the call says so, the program lives, and the
// stream is whole.
#include "tests/unit/client/failing_memory.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

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
  /// Waits where the server has not seen yet that the one before is gone.
  std::unique_ptr<Reader> reader() {
    const Deadline deadline = Deadline::after_ms(10'000);
    auto opened = Reader::open(address_, reader_options_);
    while (!opened && opened.error().code == ErrorCode::busy && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      opened = Reader::open(address_, reader_options_);
    }
    if (opened) return std::move(*opened);
    throw std::runtime_error("no reader: " + opened.error().message());
  }
  /// Waits for it. A stream without a writer has interruptions to tell of.
  static Result<std::shared_ptr<const Step>> next_step(Reader& reader) {
    auto next = reader.next(10'000);
    while (next && next->kind == NextStep::Kind::notice) next = reader.next(10'000);
    if (!next) return fail(std::move(next.error()));
    if (next->kind != NextStep::Kind::step) return fail(ErrorCode::timeout, "no step comes: " + next->text);
    return std::move(next->step);
  }
  void check_content(const Step& step) {
    const auto content = content_of(step);
    ASSERT_OK(content);
    EXPECT_EQ(*content, committed_.at(step.number()));
  }
  void write_whole_step(Writer& writer) {
    const auto begun = writer.begin_step();
    ASSERT_OK(begun);
    ASSERT_OK(put_content(writer, ++content_));
    ASSERT_OK(writer.end_step());
    committed_[*begun] = content_;
  }
  /// All steps that were told committed and that retention keeps are there, one after another, each with what was sent;
  /// and nothing else but the step in doubt, whole, where it comes next.
  void check_stream() {
    ReaderOptions options;
    options.follow = false;
    auto reader = Reader::open(address_, options);
    ASSERT_OK(reader);
    const auto steps = (*reader)->steps();
    ASSERT_OK(steps);
    ASSERT_FALSE(steps->empty());
    auto expected = committed_;
    if (in_doubt_ && steps->back().step == in_doubt_->first) expected.insert(*in_doubt_);
    EXPECT_EQ(steps->back().step, expected.rbegin()->first);
    EXPECT_GE(steps->size(), std::min<std::size_t>(*writer_options_.retention->last, expected.size()));
    std::uint64_t number = steps->front().step;
    for (const StepSummary& summary : *steps) {
      EXPECT_EQ(summary.step, number++) << "a step is missing";
      const auto step = (*reader)->step(summary.step);
      ASSERT_OK(step);
      ASSERT_OK((*step)->verify());
      const auto content = content_of(**step);
      ASSERT_OK(content);
      ASSERT_TRUE(expected.contains(summary.step));
      EXPECT_EQ(*content, expected[summary.step]);
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

  /// Each allocation fails, and in a second round all from there on.
  template <class FailAt>
  static void sweep_failures(std::uint64_t allocations_about, const FailAt& fail_at) {
    for (const bool lasting : {false, true}) {
      SCOPED_TRACE(lasting ? "lasting" : "once");
      sweep(allocations_about, [&](std::uint64_t n, Random&) { return fail_at(n, lasting); });
    }
  }

  const Address address_{"res", "flow", std::nullopt};
  ServerOnDisk server_;
  WriterOptions writer_options_;
  ReaderOptions reader_options_;
  std::uint64_t content_ = 0;
  std::map<std::uint64_t, std::uint64_t> committed_;                 // number and content of those told to be so
  std::optional<std::pair<std::uint64_t, std::uint64_t>> in_doubt_;  // the step whose writing failed
};

// crash-matrix: no memory | writer, any allocation of begin_step, put or end_step, once, and from then on | every step told committed that retention keeps, with its content; the step is there whole or not at all; a new writer goes on behind it
TEST_F(FailingMemoryTest, in_a_writer_leaves_the_stream_whole) {
  sweep_failures(25, [&](std::uint64_t n, bool lasting) {
    auto writing = writer();
    write_whole_step(*writing);
    in_doubt_ = {writing->current_step(), ++content_};
    bool ended = false;
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      if (auto begun = writing->begin_step(); !begun) return fail(begun.error());
      if (auto put = put_content(*writing, content_); !put) return put;
      auto end = writing->end_step();
      ended = end.has_value();
      return end;
    });
    // Where the failure has cost an answer the connection is given up, and the group with it; else the writer goes on.
    if (writing->in_step() && !writing->abort_step()) ended = writing->end_step().has_value();
    if (ended) committed_.insert(*in_doubt_);
    if (const auto begun = writing->begin_step(); begun) {
      // What the writer goes on with tells whether the step counts for it.
      EXPECT_EQ(*begun, in_doubt_->first + (ended ? 1 : 0));
      EXPECT_TRUE(put_content(*writing, ++content_));
      EXPECT_TRUE(writing->end_step());
      committed_[*begun] = content_;
      in_doubt_.reset();
    } else {
      EXPECT_EQ(begun.error().code, ErrorCode::group_broken) << begun.error().message();
    }
    writing.reset();
    check_stream();
    write_whole_step(*writer());
    // The step in doubt came before it or never.
    const std::uint64_t newest = committed_.rbegin()->first;
    if (in_doubt_ && newest > in_doubt_->first) committed_.insert(*in_doubt_);
    in_doubt_.reset();
    check_stream();
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation of next, of reading a step or of letting go of it, once, and from then on | every step, with its content; the same reader goes on with this step or the next; another one of the same consumer goes on behind the step that was acknowledged (where the acknowledgement failed: with it or behind it)
TEST_F(FailingMemoryTest, in_a_reader_leaves_the_stream_whole) {
  std::uint64_t acknowledged = 0;  // steps, by the consumer
  sweep_failures(70, [&](std::uint64_t n, bool lasting) {
    write_whole_step(*writer());
    auto reading = reader();
    EXPECT_EQ(reading->position(), acknowledged);
    bool tried = false;
    bool told = false;
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      auto next = next_step(*reading);
      if (!next) return fail(next.error());
      auto content = content_of(**next);
      if (!content) return fail(content.error());
      tried = true;
      auto done = reading->acknowledge(**next);
      told = done.has_value();
      return done;
    });
    // The same reader goes on, unless the server has not seen yet that it gave its connection up.
    write_whole_step(*writer());
    if (const auto next = next_step(*reading)) {
      EXPECT_GE((*next)->number(), acknowledged + (told ? 1 : 0));
      EXPECT_LE((*next)->number(), acknowledged + 1);
      check_content(**next);
    } else {
      EXPECT_EQ(next.error().code, ErrorCode::busy) << next.error().message();
    }
    reading.reset();
    check_stream();
    // Another one takes everything, from where the cursor is.
    auto another = reader();
    bool first = true;
    while (acknowledged <= committed_.rbegin()->first && !HasFailure()) {
      const auto next = next_step(*another);
      if (!next) {
        ADD_FAILURE() << next.error().message();
        break;
      }
      if (first && tried && (told || (*next)->number() != acknowledged)) ++acknowledged;
      first = false;
      EXPECT_EQ((*next)->number(), acknowledged);
      check_content(**next);
      const auto done = another->acknowledge(**next);
      EXPECT_TRUE(done) << done.error().message();
      ++acknowledged;
    }
    return failed;
  });
}

}  // namespace
}  // namespace forebay::testing
