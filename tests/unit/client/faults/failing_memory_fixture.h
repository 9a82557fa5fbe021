// SPDX-License-Identifier: Apache-2.0
// A stream of numbered content whose clients get no memory, and what is known of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "tests/unit/client/faults/failing_memory.h"
#include "tests/unit/client/faults/sweep.h"
#include "tests/unit/client/numbered_content.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {

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
    writer_options_.interrupt = patience();
    auto opened = Writer::open(address_, writer_options_);
    EXPECT_TRUE(opened) << opened.error().message();
    return opened ? std::move(*opened) : nullptr;
  }
  /// Waits where the server has not seen yet that the one before is gone.
  std::unique_ptr<Reader> reader() {
    const Deadline deadline = Deadline::after_ms(10'000);
    reader_options_.interrupt = patience();
    auto opened = Reader::open(address_, reader_options_);
    while (!opened && opened.error().code == ErrorCode::busy && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      opened = Reader::open(address_, reader_options_);
    }
    if (opened) return std::move(*opened);
    throw std::runtime_error("no reader: " + opened.error().message());
  }
  std::unique_ptr<Reader> reader_at_random() {
    ReaderOptions options;
    options.follow = false;
    auto opened = Reader::open(address_, options);
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
    const auto reader = reader_at_random();
    const auto steps = reader->steps();
    ASSERT_OK(steps);
    ASSERT_FALSE(steps->empty());
    auto expected = committed_;
    if (in_doubt_ && steps->back().step == in_doubt_->first) expected.insert(*in_doubt_);
    EXPECT_EQ(steps->back().step, expected.rbegin()->first);
    EXPECT_GE(steps->size(), std::min<std::size_t>(*writer_options_.retention->last, expected.size()));
    std::uint64_t number = steps->front().step;
    for (const StepSummary& summary : *steps) {
      EXPECT_EQ(summary.step, number++) << "a step is missing";
      const auto step = reader->step(summary.step);
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
  static void sweep_failures(std::uint64_t allocations_min, const FailAt& fail_at) {
    for (const bool lasting : {false, true}) {
      SCOPED_TRACE(lasting ? "lasting" : "once");
      sweep(allocations_min, [&](std::uint64_t n, Random&) { return fail_at(n, lasting); });
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

}  // namespace forebay::testing
