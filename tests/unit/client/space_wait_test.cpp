// SPDX-License-Identifier: Apache-2.0
// Writers that wait for space: who makes room is told to them without anybody asking, and so is that nobody will.
#include <atomic>
#include <thread>

#include <forebay/admin.h>

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
    options.interrupt = [this] {
      set_waits();
      return false;
    };
    return open_writer(options, stream);
  }
  /// Writes a step, for whose space the writer has to wait; returns when it does.
  void begin_waiting(Writer& writer, std::uint64_t bytes) {
    waits_ = false;
    thread_ = std::jthread([this, &writer, bytes] {
      written_ = write(writer, bytes);
      set_waits();
    });
    waits_.wait(false);
  }
  Result<void> outcome() {
    thread_.join();
    return std::move(written_);
  }

  ServerOnDisk own_server_;

 private:
  void set_waits() {
    waits_ = true;
    waits_.notify_all();
  }

  std::atomic<bool> waits_ = false;
  Result<void> written_;
  std::jthread thread_;
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
  ASSERT_OK(outcome());
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
  ASSERT_OK(outcome());
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
  ASSERT_OK(outcome());
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
  ASSERT_OK(outcome());
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
  const auto written = outcome();
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
  ASSERT_OK(outcome());
}

}  // namespace
}  // namespace forebay::testing
