// SPDX-License-Identifier: Apache-2.0
// Retention first:N: the first steps stay until the stream has ended, whatever happens to server and group.
#include <thread>

#include <forebay/admin.h>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class FirstSteps : public StreamTest {
 protected:
  std::uint64_t capacity() const override { return 16 * mib; }

  static std::vector<std::uint64_t> kept() {
    std::vector<std::uint64_t> numbers;
    auto admin = Admin::connect({}, {}, 30'000);
    const auto steps = (*admin)->steps(*parse_address("res/flow"));
    EXPECT_TRUE(steps) << steps.error().message();
    for (const StepSummary& step : *steps) numbers.push_back(step.step);
    return numbers;
  }
  static StreamInfo info() { return *(*Admin::connect({}, {}, 30'000))->stream(*parse_address("res/flow")); }

  WriterOptions options(const char* retention, const char* run = "") {
    WriterOptions options;
    options.mode = WriteMode::append;
    options.retention = *parse_retention(retention);
    options.run = run;
    options.grace_ms = 600'000;
    return options;
  }
};

using Numbers = std::vector<std::uint64_t>;

TEST_F(FirstSteps, stay_over_restarts_of_server_and_group_until_the_stream_has_ended) {
  auto writer = open_writer(options("last:1,first:2", "run 17"));
  for (int step = 0; step < 5; ++step) write_step(*writer, 1000, step);
  EXPECT_EQ(kept(), Numbers({0, 1, 4}));
  EXPECT_FALSE((*(*Admin::connect())->steps(*parse_address("res/flow"))).front().precious);

  server_.kill();
  server_.start();
  write_step(*writer, 1000, 5.0);
  EXPECT_EQ(kept(), Numbers({0, 1, 5}));
  EXPECT_EQ(info().run, "run 17");
  EXPECT_EQ(info().retention, *parse_retention("last:1,first:2"));

  ASSERT_OK(writer->begin_step());
  writer.reset();
  while (info().status != StreamStatus::interrupted) std::this_thread::yield();
  server_.kill();
  server_.start();
  EXPECT_EQ(info().run, "run 17");
  EXPECT_EQ(kept(), Numbers({0, 1, 5}));

  WriterOptions again = options("all");
  again.retention.reset();
  again.run = "run 18";
  writer = open_writer(again);
  write_step(*writer, 1000, 6.0);
  EXPECT_EQ(kept(), Numbers({0, 1, 6}));
  EXPECT_EQ(info().run, "run 18");
  ASSERT_OK(writer->close());
  EXPECT_EQ(info().status, StreamStatus::ended);
  EXPECT_EQ(kept(), Numbers({6}));
}

TEST_F(FirstSteps, are_not_in_the_way_of_a_replacement) {
  auto writer = open_writer(options("last:1,first:2"));
  for (int step = 0; step < 3; ++step) write_step(*writer, 1000, step);
  ASSERT_OK(writer->close());
  WriterOptions replace = options("last:1,first:1");
  replace.mode = WriteMode::replace;
  writer = open_writer(replace);
  for (int step = 0; step < 3; ++step) write_step(*writer, 1000, step);
  EXPECT_EQ(kept(), Numbers({0, 2}));
}

TEST_F(FirstSteps, are_not_dropped_for_space) {
  WriterOptions wanted = options("all,first:2");
  wanted.when_full = WhenFull::drop_oldest;
  auto writer = open_writer(wanted);
  const std::size_t elements = 2 * mib / sizeof(double);
  for (int step = 0; step < 20; ++step) write_step(*writer, elements, step);
  const Numbers numbers = kept();
  ASSERT_GE(numbers.size(), 3U);
  EXPECT_EQ(numbers[0], 0U);
  EXPECT_EQ(numbers[1], 1U);
  EXPECT_GT(numbers[2], 2U);
  EXPECT_EQ(numbers.back(), 19U);
}

TEST_F(FirstSteps, that_fill_the_reservation_are_an_error_not_a_wait) {
  WriterOptions wanted = options("last:1,first:1000");
  wanted.block_timeout_ms = -1;
  auto writer = open_writer(wanted);
  const std::vector<double> values(2 * mib / sizeof(double));
  const Dimensions shape{values.size()};
  const Dimensions zeros{0};
  Result<void> put;
  for (int step = 0; step < 20 && put; ++step) {
    auto begun = writer->begin_step();
    put = begun ? writer->put(whole<double>("T", shape, zeros), values.data()) : fail(begun.error());
    if (put) put = writer->end_step();
  }
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::no_space);
}

}  // namespace
}  // namespace forebay::testing
