// SPDX-License-Identifier: Apache-2.0
// Servers that die and come back: writers go on with the step that was open, readers with where they were and what they
// hold.
#include <atomic>
#include <chrono>
#include <future>
#include <numeric>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

using Restart = StreamTest;

TEST_F(Restart, writer_goes_on_between_steps) {
  auto writer = open_writer();
  write_step(*writer, 1000, 1.0);
  server_.kill();
  server_.start();
  write_step(*writer, 1000, 2.0);
  auto reader = open_reader();
  EXPECT_EQ(read_step(**reader->step(0)).front(), 1.0);
  EXPECT_EQ(read_step(**reader->step(1)).front(), 2.0);
  ASSERT_OK(writer->close());
}

TEST_F(Restart, open_step_is_committed_whole) {
  auto writer = open_writer();
  write_step(*writer, 100'000, 1.0);
  const std::vector<double> values(100'000, 7.0);
  const Dimensions shape{100'000};
  const Dimensions zeros{0};
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->put(whole<double>("A", shape, zeros), values.data()));
  server_.kill();
  server_.start();
  // Needs more space than is held: the request finds the server gone.
  ASSERT_OK(writer->put(whole<double>("B", shape, zeros), values.data()));
  ASSERT_OK(writer->put(whole<double>("C", shape, zeros), values.data()));
  server_.kill();
  server_.start();
  ASSERT_OK(writer->end_step());
  auto reader = open_reader();
  auto step = reader->step(1);
  ASSERT_OK(step);
  EXPECT_EQ((*step)->variables().size(), 3U);
  ASSERT_OK((*step)->verify());
}

TEST_F(Restart, calls_wait_for_the_server) {
  auto writer = open_writer();
  write_step(*writer, 1000, 1.0);
  auto reader = open_reader();
  ASSERT_OK(reader->next(1000));
  server_.kill();
  auto waiting = std::async(std::launch::async, [&] { return reader->next(-1); });
  auto writing = std::async(std::launch::async, [&] { write_step(*writer, 1000, 2.0); });
  EXPECT_EQ(writing.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  server_.start();
  writing.get();
  auto next = waiting.get();
  ASSERT_OK(next);
  while (next->kind == NextStep::Kind::notice) {
    next = reader->next(10'000);
    ASSERT_OK(next);
  }
  ASSERT_EQ(next->kind, NextStep::Kind::step) << next->text;
  EXPECT_EQ(next->step->number(), 1U);
  EXPECT_EQ(read_step(*next->step).front(), 2.0);
}

TEST_F(Restart, grace_of_a_lost_group_goes_on) {
  for (const std::int64_t grace_ms : {600'000, 1}) {
    WriterOptions options;
    options.grace_ms = grace_ms;
    const std::string stream = "grace" + std::to_string(grace_ms);
    auto writer = open_writer(options, stream);
    write_step(*writer, 10, 1.0);
    ASSERT_OK(writer->begin_step());
    writer.reset();
    while (open_reader({}, stream)->info()->status != StreamStatus::interrupted) std::this_thread::yield();
    server_.kill();
    server_.start();
    auto reader = open_reader({}, stream);
    ASSERT_EQ(reader->next(10'000)->kind, NextStep::Kind::step);
    if (grace_ms == 1) {
      // Over long since.
      auto next = reader->next(10'000);
      while (next->kind == NextStep::Kind::notice) next = reader->next(10'000);
      EXPECT_EQ(next->kind, NextStep::Kind::end_of_stream);
      EXPECT_EQ(next->status, StreamStatus::interrupted);
      continue;
    }
    EXPECT_NE(reader->next(50)->kind, NextStep::Kind::end_of_stream);
    EXPECT_NE(reader->next(50)->kind, NextStep::Kind::end_of_stream);
    options.mode = WriteMode::append;
    auto again = open_writer(options, stream);
    write_step(*again, 10, 2.0);
    auto next = reader->next(10'000);
    while (next->kind == NextStep::Kind::notice) next = reader->next(10'000);
    ASSERT_EQ(next->kind, NextStep::Kind::step);
    EXPECT_EQ(next->step->number(), 1U);
  }
}

TEST_F(Restart, pins_of_unnamed_readers_are_kept_beyond_their_limit) {
  // Of 256 MiB such readers may pin a quarter together.
  const std::size_t elements = 5 * mib;
  auto writer = open_writer();
  write_step(*writer, elements, 1.0);
  write_step(*writer, elements, 2.0);
  auto reader = open_reader();
  const auto held = reader->next(1000);
  ASSERT_OK(held);
  ASSERT_TRUE(held->step->pinned());
  auto other = open_reader();
  ASSERT_FALSE((*other->step(1))->pinned());
  server_.kill();
  server_.start();
  // This one is back first.
  const auto taken = other->step(1);
  ASSERT_OK(taken);
  ASSERT_TRUE((*taken)->pinned());
  ASSERT_OK(reader->next(10'000));
  ASSERT_OK(held->step->verify());
  EXPECT_EQ(read_step(*held->step).front(), 1.0);
}

TEST_F(Restart, server_that_stays_away_is_an_error) {
  WriterOptions options;
  options.reconnect_timeout_ms = 200;
  auto writer = open_writer(options);
  ReaderOptions reader_options;
  reader_options.reconnect_timeout_ms = 400;
  auto reader = open_reader(reader_options);
  server_.kill();
  const double value = 1.0;
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->put({"x", DataType::float64, ShapeKind::global_value, {}, {}, {}, {}, {}}, &value));
  auto ended = writer->end_step();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::disconnected);
  EXPECT_NE(ended.error().message().find("forebay up"), std::string::npos) << ended.error().message();
  // A reader that asks for less time than it may take gets "not ready" until that is over.
  auto polled = reader->next(0);
  ASSERT_OK(polled);
  EXPECT_EQ(polled->kind, NextStep::Kind::not_ready);
  auto waited = reader->next(-1);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::disconnected);
}

TEST_F(Restart, many_steps_by_number_come_all_the_same) {
  auto writer = open_writer();
  for (int step = 0; step < 200; ++step) write_step(*writer, 10, step);
  auto reader = open_reader();
  std::vector<std::uint64_t> numbers(200);
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::vector<std::uint64_t> seen;
  ASSERT_OK(reader->for_each_step(numbers, [&](const std::shared_ptr<const Step>& step) -> Result<void> {
    if (step->number() == 70) {
      server_.kill();
      server_.start();
    }
    EXPECT_EQ(read_step(*step).front(), static_cast<double>(step->number()));
    seen.push_back(step->number());
    return {};
  }));
  EXPECT_EQ(seen, numbers);
}

TEST_F(Restart, pinned_step_survives_with_its_bytes) {
  WriterOptions options;
  options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  auto writer = open_writer(options);
  write_step(*writer, 100'000, 1.0);
  auto reader = open_reader();
  auto next = reader->next(1000);
  ASSERT_OK(next);
  auto view = next->step->view(*next->step->find("T"), {{0}, {100'000}});
  ASSERT_OK(view);
  server_.kill();
  server_.start();
  for (int step = 1; step < 50; ++step) {
    write_step(*writer, 1'000'000, 2.0 * step);
    ASSERT_OK(reader->next(10'000));
  }
  ASSERT_OK(next->step->verify());
  EXPECT_EQ(read_step(*next->step).front(), 1.0);
  EXPECT_EQ(reinterpret_cast<const double*>(view->data)[99'999], 100'000.0);
}

TEST_F(Restart, segments_of_a_removed_stream_are_not_reused_while_its_writer_can_write) {
  auto admin = Admin::connect();
  ASSERT_OK(admin);
  server_.create("small", 8 * mib);
  const auto open = [](const std::string& stream) {
    WriterOptions options;
    options.when_full = WhenFull::error;
    return Writer::open(*parse_address("small/" + stream), options);
  };
  const std::size_t elements = 5 * mib / sizeof(double);
  auto old = open("old");
  ASSERT_OK(old);
  write_step(**old, elements, 1.0);
  ASSERT_OK((*admin)->remove_stream(*parse_address("small/old"), true));
  server_.kill();
  server_.start();
  auto next = open("next");
  ASSERT_OK(next);
  const std::vector<double> values(elements, 2.0);
  const Dimensions shape{elements};
  const Dimensions zeros{0};
  ASSERT_OK((*next)->begin_step());
  auto put = (*next)->put(whole<double>("T", shape, zeros), values.data());
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::no_space);
  old->reset();
  ASSERT_OK((*next)->put(whole<double>("T", shape, zeros), values.data()));
  ASSERT_OK((*next)->end_step());
}

TEST_F(Restart, rewind_is_told_although_the_server_dies_again_before_the_next_step) {
  auto writer = open_writer();
  for (int step = 0; step < 2; ++step) write_step(*writer, 10, step);
  ASSERT_OK(writer->close());
  auto reader = open_reader();
  for (int step = 0; step < 2; ++step) ASSERT_EQ(reader->next(10'000)->kind, NextStep::Kind::step);
  server_.kill();
  server_.start();
  WriterOptions options;
  options.mode = WriteMode::append;
  options.append_after = 0;
  auto again = open_writer(options);
  auto next = reader->next(50);
  while (next->kind == NextStep::Kind::notice) next = reader->next(50);
  ASSERT_EQ(next->kind, NextStep::Kind::not_ready);
  server_.kill();
  server_.start();
  write_step(*again, 10, 2.0);
  do {
    next = reader->next(10'000);
    ASSERT_OK(next);
  } while (next->kind == NextStep::Kind::notice);
  ASSERT_EQ(next->kind, NextStep::Kind::step) << next->text;
  EXPECT_EQ(next->step->number(), 1U);
  EXPECT_TRUE(next->rewound);
}

TEST_F(Restart, interrupt_ends_the_wait_for_the_server) {
  bool stop = false;
  WriterOptions options;
  options.interrupt = [&] { return stop; };
  auto writer = open_writer(options);
  server_.kill();
  stop = true;
  ASSERT_OK(writer->begin_step());
  auto ended = writer->end_step();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::cancelled);
  // The same call goes on once the server is back.
  stop = false;
  server_.start();
  ASSERT_OK(writer->end_step());
  EXPECT_EQ(writer->current_step(), 1U);
}

TEST_F(Restart, stopped_server_can_be_interrupted) {
  std::atomic<bool> stop = false;
  ReaderOptions options;
  options.interrupt = [&] { return stop.load(); };
  auto writer = open_writer();
  auto reader = open_reader(options);
  server_.suspend();
  auto waiting = std::async(std::launch::async, [&] { return reader->step(0); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  stop = true;
  EXPECT_EQ(waiting.get().error().code, ErrorCode::cancelled);
  server_.resume();
  stop = false;
  write_step(*writer, 10, 1.0);
  auto next = reader->next(10'000);
  ASSERT_OK(next);
  EXPECT_EQ(next->step->number(), 0U);
}

TEST_F(Restart, many_restarts_lose_no_step) {
  auto writer = open_writer();
  auto reader = open_reader();
  for (int round = 0; round < 10; ++round) {
    server_.kill();
    auto writing = std::async(std::launch::async, [&] { write_step(*writer, 5000, round); });
    server_.start();
    writing.get();
    auto next = reader->next(10'000);
    while (next && next->kind == NextStep::Kind::notice) next = reader->next(10'000);
    ASSERT_OK(next);
    ASSERT_EQ(next->kind, NextStep::Kind::step);
    EXPECT_EQ(next->step->number(), static_cast<std::uint64_t>(round));
    EXPECT_EQ(read_step(*next->step).front(), round);
  }
}

TEST_F(Restart, a_reader_goes_on_while_a_step_is_read_in_another_thread) {
  constexpr std::uint64_t last = 60;
  auto writer = open_writer();
  auto reader = open_reader();
  // More than a reader without a name may pin: each read of it asks the server.
  write_step(*writer, 65 * mib / sizeof(double), 0);
  auto large = reader->next(10'000);
  ASSERT_OK(large);
  ASSERT_EQ(large->kind, NextStep::Kind::step);
  std::atomic<bool> done = false;
  // Whichever thread first finds the server gone brings the connection back, while the other may have an answer in
  // hand.
  auto reading = std::async(std::launch::async, [&] {
    const Step& step = *large->step;
    double value = -1;
    while (!done) ASSERT_OK(step.read(*step.find("T"), {{0}, {1}}, &value));
    EXPECT_EQ(value, 0);
  });
  auto following = std::async(std::launch::async, [&] {
    for (std::uint64_t expected = 1; expected <= last;) {
      auto next = reader->next(10'000);
      ASSERT_OK(next);
      if (next->kind == NextStep::Kind::notice) continue;
      ASSERT_EQ(next->kind, NextStep::Kind::step);
      ASSERT_EQ(next->step->number(), expected);
      EXPECT_EQ(read_step(*next->step).front(), static_cast<double>(expected));
      auto again = reader->step(expected);
      ASSERT_OK(again);
      EXPECT_EQ(read_step(**again).front(), static_cast<double>(expected));
      ++expected;
    }
  });
  for (std::uint64_t step = 1; step <= last; ++step) {
    write_step(*writer, 5000, static_cast<double>(step));
    if (step % 3 != 0) continue;
    server_.kill();
    server_.start();
  }
  following.get();
  done = true;
  reading.get();
}

}  // namespace
}  // namespace forebay::testing
