// SPDX-License-Identifier: Apache-2.0
// Writers that wait for space: who makes room is told to them without anybody asking, and so is that nobody will.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <forebay/admin.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

/// No connection ends while a writer waits, and nothing is synced by itself: either would make the server look again.
class SpaceWait : public StreamTest {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    own_server_.set_restart_grace_ms(60'000);
    ASSERT_OK(own_server_.start());
    ASSERT_OK(own_server_.create("res", capacity()));
  }
  std::uint64_t capacity() const override { return 16 * mib; }

  static Result<void> put(Writer& writer, std::uint64_t bytes) {
    const std::vector<double> values(bytes / sizeof(double), 1.0);
    const Dimensions shape{values.size()};
    const Dimensions zeros{0};
    if (auto begun = writer.begin_step(); !begun) return fail(std::move(begun.error()));
    return writer.put(whole<double>("T", shape, zeros), values.data());
  }
  static Result<void> write(Writer& writer, std::uint64_t bytes) {
    if (auto written = put(writer, bytes); !written) return written;
    return writer.end_step();
  }

  /// One that says when it waits.
  std::unique_ptr<Writer> open_waiting(const std::string& stream, WriterOptions options = {}) {
    const auto step = std::make_shared<StepInWriting>();
    options.interrupt = [step, patience = Deadline::after_ms(60'000)] {
      step->set_waits();
      return patience.passed();
    };
    auto writer = open_writer(options, stream);
    steps_[writer.get()] = step;
    return writer;
  }
  /// Writes a step, for whose space the writer has to wait; returns when it does.
  void begin_waiting(Writer& writer, std::uint64_t bytes) {
    StepInWriting& step = *steps_.at(&writer);
    step.waits = false;
    step.ended = false;
    step.thread = std::jthread([&step, &writer, bytes] {
      step.written = write(writer, bytes);
      step.ended = true;
      step.set_waits();
    });
    step.waits.wait(false);
  }
  Result<void> outcome(const Writer& writer) {
    StepInWriting& step = *steps_.at(&writer);
    step.thread.join();
    return std::move(step.written);
  }
  /// The server dies, and another one comes; returns when these, which are all, wait for its answers.
  void let_server_die(const std::vector<const Writer*>& waiting) {
    ASSERT_OK(own_server_.restart(false));
    auto admin = Admin::connect();
    ASSERT_OK(admin);
    const auto says_who_is_missing = [](const Finding& finding) {
      return finding.what.find("waits for its writers to come back") != std::string::npos;
    };
    while (true) {
      const auto findings = (*admin)->audit(false);
      ASSERT_OK(findings);
      if (std::ranges::none_of(*findings, says_who_is_missing)) break;
      std::this_thread::yield();
    }
    // Who is back asks at once.
    for (const Writer* writer : waiting) {
      StepInWriting& step = *steps_.at(writer);
      step.waits = false;
      if (!step.ended) step.waits.wait(false);
      EXPECT_FALSE(step.ended) << "it did not wait for space any more";
    }
  }
  /// The reader gets that many steps and is done with them.
  static void pass(Reader& reader, int steps) {
    for (int step = 0; step < steps; ++step) {
      auto next = reader.next(10'000);
      while (next && next->kind == NextStep::Kind::notice) next = reader.next(10'000);
      ASSERT_OK(next);
      ASSERT_EQ(next->kind, NextStep::Kind::step);
      ASSERT_OK(next->step->verify());
      ASSERT_OK(reader.acknowledge(*next->step));
    }
  }
  /// That step is there, whole, and none behind it.
  void check_newest(const std::string& stream, std::uint64_t number, std::uint64_t bytes) {
    auto reader = open_reader({}, stream);
    const auto info = reader->info();
    ASSERT_OK(info);
    EXPECT_EQ(info->committed, number);
    const auto step = reader->step(number);
    ASSERT_OK(step);
    ASSERT_OK((*step)->verify());
    EXPECT_EQ(read_step(**step), std::vector<double>(bytes / sizeof(double), 1.0));
  }

  ServerOnDisk own_server_;

 private:
  struct StepInWriting {
    void set_waits() {
      waits = true;
      waits.notify_all();
    }
    std::atomic<bool> waits = false;
    std::atomic<bool> ended = false;
    Result<void> written;
    std::jthread thread;
  };

  std::map<const Writer*, std::shared_ptr<StepInWriting>> steps_;
};

TEST_F(SpaceWait, ends_when_a_consumer_joins_behind_what_fills_the_space) {
  WriterOptions options;
  options.retention = *parse_retention("consumers:render");
  auto writer = open_waiting("flow", options);
  ASSERT_OK(write(*writer, 10 * mib));
  begin_waiting(*writer, 10 * mib);
  ReaderOptions consumer;
  consumer.consumer = "render";
  consumer.start = {Start::Kind::next};
  auto reader = open_reader(consumer);
  ASSERT_OK(outcome(*writer));
  const auto next = reader->next(10'000);
  ASSERT_OK(next);
  ASSERT_EQ(next->kind, NextStep::Kind::step);
  EXPECT_EQ(next->step->number(), 1U);
}

// crash-matrix: waiting for space | a consumer that retention waits for, gone for good | the writer waits until the retention names it no more, and goes on; nothing that others need is lost
TEST_F(SpaceWait, ends_when_retention_does_not_ask_for_a_lost_consumer_any_more) {
  WriterOptions options;
  options.retention = *parse_retention("consumers:gone+render");
  auto writer = open_waiting("flow", options);
  ReaderOptions consumer;
  consumer.consumer = "gone";
  ASSERT_TRUE(open_reader(consumer));  // and closed at once
  consumer.consumer = "render";
  auto reader = open_reader(consumer);
  ASSERT_OK(write(*writer, 6 * mib));
  ASSERT_OK(write(*writer, 6 * mib));
  ASSERT_OK(reader->acknowledge(*reader->next(10'000)->step));
  auto admin = Admin::connect();
  ASSERT_OK(admin);
  begin_waiting(*writer, 6 * mib);
  EXPECT_EQ((*admin)->stream(*parse_address("res/flow"))->steps, 2U);
  ASSERT_OK((*admin)->set_retention(*parse_address("res/flow"), *parse_retention("consumers:render")));
  ASSERT_OK(outcome(*writer));
  const auto next = reader->next(10'000);
  ASSERT_OK(next);
  ASSERT_EQ(next->kind, NextStep::Kind::step);
  EXPECT_EQ(next->step->number(), 1U);
}

// crash-matrix: waiting for space | a consumer that has not read the oldest step, gone for good, where the writer drops the oldest ones | the writer waits until the consumer is removed by name, and goes on
TEST_F(SpaceWait, ends_when_a_consumer_that_never_comes_back_is_removed) {
  WriterOptions options;
  options.when_full = WhenFull::drop_oldest;
  auto writer = open_waiting("flow", options);
  ReaderOptions consumer;
  consumer.consumer = "gone";
  ASSERT_TRUE(open_reader(consumer));  // and closed at once
  ASSERT_OK(write(*writer, 6 * mib));
  ASSERT_OK(write(*writer, 6 * mib));
  auto admin = Admin::connect();
  ASSERT_OK(admin);
  begin_waiting(*writer, 6 * mib);
  EXPECT_EQ((*admin)->stream(*parse_address("res/flow"))->steps, 2U);
  ASSERT_OK((*admin)->remove_consumer(*parse_address("res/flow"), "gone"));
  ASSERT_OK(outcome(*writer));
  EXPECT_EQ((*admin)->stream(*parse_address("res/flow"))->oldest, 1U);
}

TEST_F(SpaceWait, does_not_meet_a_small_step_behind_a_large_one) {
  WriterOptions options;
  options.when_full = WhenFull::error;
  auto writer = open_writer(options);
  for (const std::uint64_t bytes : {std::uint64_t{8}, 10 * mib, std::uint64_t{8}}) ASSERT_OK(write(*writer, bytes));
}

TEST_F(SpaceWait, of_a_consumer_that_begins_far_ahead_passes_no_step_to_come) {
  WriterOptions options;
  options.retention = *parse_retention("consumers:render");
  auto writer = open_writer(options);
  for (int step = 0; step < 3; ++step) ASSERT_OK(write(*writer, 8));
  ReaderOptions consumer;
  consumer.consumer = "render";
  consumer.start = {Start::Kind::step, 1'000'000};
  auto reader = open_reader(consumer);
  ASSERT_OK(write(*writer, 8));
  auto admin = Admin::connect();
  ASSERT_OK(admin);
  const auto info = (*admin)->stream(*parse_address("res/flow"));
  ASSERT_OK(info);
  EXPECT_EQ(info->oldest, 3U);
  EXPECT_EQ(info->steps, 1U);
}

/// A stream that keeps one step of 4 MiB, which is durable, and has begun the next; 3 MiB are another's.
class SpaceThatComesWithASync : public SpaceWait {
 protected:
  void SetUp() override {
    SpaceWait::SetUp();
    WriterOptions options;
    options.retention = *parse_retention("last:1");
    ring_ = open_writer(options, "ring");
    ASSERT_OK(write(*ring_, 4 * mib));
    ReaderOptions durable;
    durable.min_watermark = Watermark::durable;
    reader_ = open_reader(durable, "ring");
    ASSERT_OK(reader_->next(10'000));
    ASSERT_OK(put(*ring_, 4 * mib));
    kept_ = open_waiting("kept");
    ASSERT_OK(write(*kept_, 3 * mib));
  }
  std::unique_ptr<Writer> ring_;
  std::unique_ptr<Writer> kept_;
  std::unique_ptr<Reader> reader_;
};

TEST_F(SpaceThatComesWithASync, is_had_by_those_who_wait_when_another_commits) {
  begin_waiting(*kept_, 3 * mib);
  ASSERT_OK(ring_->end_step());
  ASSERT_OK(outcome(*kept_));
}

TEST_F(SpaceThatComesWithASync, is_all_that_a_writer_waits_for_who_wants_an_error) {
  WriterOptions options;
  options.when_full = WhenFull::error;
  auto hasty = open_waiting("hasty", options);
  // With what this one has begun there would be enough.
  auto other = open_writer({}, "other");
  ASSERT_OK(put(*other, mib));
  ASSERT_OK(ring_->end_step());
  begin_waiting(*hasty, 7 * mib + mib / 2);
  const auto written = outcome(*hasty);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::no_space);
  EXPECT_NE(written.error().message().find("WhenFull=error"), std::string::npos) << written.error().message();
}

TEST_F(SpaceWait, ends_when_a_group_has_come_back_after_a_restart) {
  WriterOptions options;
  options.retention = *parse_retention("last:1");
  auto ring = open_writer(options, "ring");
  auto kept = open_waiting("kept");
  ASSERT_OK(write(*kept, mib));
  // Most segments are this one's, half of them free.
  for (int step = 0; step < 2; ++step) ASSERT_OK(write(*ring, 5 * mib));
  ASSERT_OK(own_server_.restart(false));
  begin_waiting(*kept, 6 * mib);
  ASSERT_OK(ring->close());
  ring.reset();
  ASSERT_OK(outcome(*kept));
}

// crash-matrix: waiting for space | server, dies while two writers wait for a consumer to pass | both steps: the writers ask the next server without being told to, which gives them the space as the consumer goes on
TEST_F(SpaceWait, outlives_the_server) {
  WriterOptions options;
  options.retention = *parse_retention("consumers:render");
  auto writer = open_waiting("flow", options);
  auto other = open_waiting("other");
  ReaderOptions consumer;
  consumer.consumer = "render";
  auto reader = open_reader(consumer);
  for (int step = 0; step < 2; ++step) ASSERT_OK(write(*writer, 6 * mib));
  begin_waiting(*writer, 6 * mib);
  begin_waiting(*other, 6 * mib);
  ASSERT_NO_FATAL_FAILURE(let_server_die({writer.get(), other.get()}));
  pass(*reader, 2);
  const auto of_both = {outcome(*writer), outcome(*other)};
  for (const auto& written : of_both) ASSERT_OK(written);
  check_newest("flow", 2, 6 * mib);
  check_newest("other", 0, 6 * mib);
}

// crash-matrix: waiting for space | server, dies while a writer that drops the oldest steps waits for a consumer to let one go | the step, and all that the consumer has not passed: the writer asks the next server, and drops what the consumer passes there
TEST_F(SpaceWait, for_a_step_to_drop_outlives_the_server) {
  WriterOptions options;
  options.when_full = WhenFull::drop_oldest;
  auto writer = open_waiting("flow", options);
  ReaderOptions consumer;
  consumer.consumer = "render";
  auto reader = open_reader(consumer);
  for (int step = 0; step < 2; ++step) ASSERT_OK(write(*writer, 6 * mib));
  begin_waiting(*writer, 6 * mib);
  ASSERT_NO_FATAL_FAILURE(let_server_die({writer.get()}));
  EXPECT_EQ(reader->info()->steps, 2U);
  pass(*reader, 1);
  ASSERT_OK(outcome(*writer));
  EXPECT_EQ(reader->info()->oldest, 1U);
  check_newest("flow", 2, 6 * mib);
  pass(*reader, 2);
}

// crash-matrix: waiting for space | server, dies while a writer waits for space that nobody gives | the writer's deadline: an error that says who holds the space; the writer goes on when there is some
TEST_F(SpaceWait, has_its_deadline_with_the_next_server_too) {
  WriterOptions options;
  options.retention = *parse_retention("consumers:render");
  options.block_timeout_ms = 5'000;
  auto writer = open_waiting("flow", options);
  ReaderOptions consumer;
  consumer.consumer = "render";
  auto reader = open_reader(consumer);
  for (int step = 0; step < 2; ++step) ASSERT_OK(write(*writer, 6 * mib));
  begin_waiting(*writer, 6 * mib);
  ASSERT_NO_FATAL_FAILURE(let_server_die({writer.get()}));
  const auto written = outcome(*writer);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::no_space);
  EXPECT_NE(written.error().message().find("the deadline for waiting passed"), std::string::npos)
      << written.error().message();
  if (writer->in_step()) ASSERT_OK(writer->abort_step());
  pass(*reader, 1);
  ASSERT_OK(write(*writer, 6 * mib));
  check_newest("flow", 2, 6 * mib);
}

}  // namespace
}  // namespace forebay::testing
