// SPDX-License-Identifier: Apache-2.0
// Steps that leave numbers out, as a stream has them that keeps the numbers of another one.
#include <thread>

#include <forebay/admin.h>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

using Numbers = std::vector<std::uint64_t>;

class NumberedSteps : public StreamTest {
 protected:
  std::uint64_t capacity() const override { return 16 * mib; }

  static void write(Writer& writer, std::uint64_t number) {
    const Dimensions shape{1000};
    const Dimensions zeros{0};
    const std::vector<double> values(1000, static_cast<double>(number));
    const auto begun = writer.begin_step(number);
    ASSERT_OK(begun);
    EXPECT_EQ(*begun, number);
    EXPECT_EQ(writer.current_step(), number);
    ASSERT_OK(writer.put(whole<double>("T", shape, zeros), values.data()));
    ASSERT_OK(writer.end_step());
    EXPECT_EQ(writer.current_step(), number + 1);
  }
  static Numbers kept() {
    Numbers numbers;
    const auto steps = (*Admin::connect())->steps(*parse_address("res/flow"));
    EXPECT_TRUE(steps) << steps.error().message();
    for (const StepSummary& step : *steps) numbers.push_back(step.step);
    return numbers;
  }
  static StreamInfo info() { return *(*Admin::connect())->stream(*parse_address("res/flow")); }

  static WriterOptions appending(const char* retention = "all") {
    WriterOptions options;
    options.mode = WriteMode::append;
    options.retention = *parse_retention(retention);
    return options;
  }
};

TEST_F(NumberedSteps, are_read_by_their_numbers_and_nothing_was_skipped) {
  auto writer = open_writer();
  for (const std::uint64_t number : {57, 58, 70}) write(*writer, number);
  ASSERT_OK(writer->close());
  EXPECT_EQ(kept(), Numbers({57, 58, 70}));
  EXPECT_EQ(info().committed, 70U);
  ReaderOptions options;
  options.follow = true;
  options.start.kind = Start::Kind::oldest;
  auto reader = open_reader(options);
  for (const std::uint64_t number : {57, 58, 70}) {
    const auto next = reader->next(30'000);
    ASSERT_OK(next);
    ASSERT_EQ(next->kind, NextStep::Kind::step);
    EXPECT_EQ(next->step->summary().step, number);
    EXPECT_EQ(next->skipped, 0U);
    EXPECT_EQ(read_step(*next->step).front(), static_cast<double>(number));
  }
  EXPECT_EQ((*reader->next(30'000)).kind, NextStep::Kind::end_of_stream);
}

TEST_F(NumberedSteps, a_number_that_was_given_is_refused_and_the_writer_goes_on) {
  auto writer = open_writer();
  write(*writer, 5);
  const auto begun = writer->begin_step(5);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(begun.error().what.find("the next number is 6"), std::string::npos) << begun.error().what;
  ASSERT_OK(writer->begin_step(9));
  ASSERT_OK(writer->abort_step());
  EXPECT_EQ(writer->current_step(), 6U);
  write(*writer, 6);
  EXPECT_EQ(kept(), Numbers({5, 6}));
}

TEST_F(NumberedSteps, survive_restarts_of_server_and_writer) {
  auto writer = open_writer(appending());
  write(*writer, 5);
  server_.kill();
  server_.start();
  write(*writer, 12);
  ASSERT_OK(writer->begin_step(20));
  server_.kill();
  server_.start();
  ASSERT_OK(writer->end_step());
  EXPECT_EQ(kept(), Numbers({5, 12, 20}));
  ASSERT_OK(writer->close());
  auto options = appending();
  options.append_after = 11;
  writer = open_writer(options);
  EXPECT_EQ(writer->current_step(), 12U);
  EXPECT_EQ(kept(), Numbers({5}));
  write(*writer, 13);
  EXPECT_EQ(kept(), Numbers({5, 13}));
}

TEST_F(NumberedSteps, retention_counts_steps_and_not_numbers) {
  auto writer = open_writer(appending("last:2"));
  for (const std::uint64_t number : {0, 1, 2, 30, 31, 90}) write(*writer, number);
  EXPECT_EQ(kept(), Numbers({31, 90}));
}

TEST_F(NumberedSteps, ranks_that_number_a_step_differently_are_refused) {
  WriterOptions options = appending();
  options.ranks = 2;
  std::unique_ptr<Writer> first;
  std::thread other([&] {
    WriterOptions second = options;
    second.rank = 1;
    auto writer = open_writer(second);
    ASSERT_OK(writer->begin_step(8));
    const auto ended = writer->end_step();
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().code, ErrorCode::invalid_argument);
    ASSERT_OK(writer->abort_step());
    ASSERT_OK(writer->begin_step(9));
    ASSERT_OK(writer->end_step());
    ASSERT_OK(writer->close());
  });
  first = open_writer(options);
  ASSERT_OK(first->begin_step(7));
  const auto ended = first->end_step();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(ended.error().what.find("rank 0 numbers the step 7, rank 1 numbers it 8"), std::string::npos)
      << ended.error().what;
  ASSERT_OK(first->abort_step());
  ASSERT_OK(first->begin_step(9));
  ASSERT_OK(first->end_step());
  ASSERT_OK(first->close());
  other.join();
  EXPECT_EQ(kept(), Numbers({9}));
}

TEST_F(NumberedSteps, an_array_that_outlives_its_step_is_a_pin_on_its_number) {
  auto writer = open_writer(appending("last:1"));
  const Dimensions shape{1000};
  const Dimensions zeros{0};
  ASSERT_OK(writer->begin_step(17));
  auto allocation = writer->allocate(whole<double>("T", shape, zeros));
  ASSERT_OK(allocation);
  ASSERT_OK(writer->end_step());
  write(*writer, 20);
  EXPECT_EQ(kept(), Numbers({17, 20}));
  allocation = {};
  write(*writer, 21);
  EXPECT_EQ(kept(), Numbers({21}));
}

}  // namespace
}  // namespace forebay::testing
