// SPDX-License-Identifier: Apache-2.0
// Power that goes while journals have segments' space: also while they take it, and while they give it back.
#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/client/faults/journal_room_fixture.h"

namespace forebay::testing {
namespace {

/// One stream of numbered values, and what is known of it.
class JournalRoomPower : public JournalRoom {
 protected:
  void SetUp() override {
    JournalRoom::SetUp();
    own_server_.share_with_clients();
    // Servers complain of what was planned.
    log::set_level(log::Level::off);
  }
  void TearDown() override { log::set_level(log::Level::error); }

  void open(Durability durability) {
    WriterOptions options;
    options.mode = WriteMode::append;
    options.durability = durability;
    writer_ = open_writer(options);
  }
  void close() {
    ASSERT_OK(writer_->close());
    writer_.reset();
  }
  /// Writes the next step; it may be there or not where this is an error.
  Result<void> write() {
    EXPECT_EQ(writer_->current_step(), written_.size());
    written_.push_back(++value_);
    if (written_.size() % 500 == 0) check_capacity();
    return try_step(*writer_, value_);
  }
  void write_steps(std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps; ++step) ASSERT_OK(write());
  }
  /// Small steps until journals have a segment's space. The last one is durable, and all before it with it.
  void write_until_lent() {
    open(Durability::committed);
    while (lent() == 0) ASSERT_NO_FATAL_FAILURE(write_steps(100));
    close();
    write_durable_step();
    ASSERT_GT(lent(), 0U);
  }
  void write_durable_step() {
    open(Durability::durable);
    write_steps(1);
    durable_ = written_.size();
    close();
  }
  void write_until_stop() {
    for (std::uint64_t step = 0; step < 2 * steps_many && write(); ++step) {
    }
    EXPECT_TRUE(disk_.stopped());
  }
  void set_retention(const char* text) {
    const auto set = admin()->set_retention(*parse_address("res/flow"), *parse_retention(text));
    EXPECT_TRUE(set || disk_.stopped()) << set.error().message();
  }

  void drop_all_but_ten() {
    may_be_gone_ = written_.size() - std::min<std::size_t>(written_.size(), 10);
    set_retention("last:10");
    // Their space comes back with a sync.
    const Deadline patience = Deadline::after_ms(60'000);
    while (!disk_.stopped() && lent() > 0 && !patience.passed()) (void)admin()->stream(*parse_address("res/flow"));
  }

  /// With the writer, which has a step open or not.
  void lose_power(Random& random) {
    ASSERT_OK(own_server_.restart(true, [&] {
      writer_.reset();
      disk_.lose_power(random);
    }));
    check_capacity();
    check_audit();
    // Those whose drop was lost go again, also while they are read.
    set_retention("all");
    check_steps();
  }
  /// All steps that were durable, or more, one behind another, each with its value. What is left is what was written.
  void check_steps() {
    ReaderOptions options;
    options.follow = false;
    auto reader = open_reader(options);
    const auto steps = reader->steps();
    ASSERT_OK(steps);
    ASSERT_FALSE(steps->empty());
    std::vector<std::uint64_t> numbers;
    for (const StepSummary& summary : *steps) numbers.push_back(summary.step);
    EXPECT_LE(numbers.front(), may_be_gone_);
    EXPECT_EQ(numbers.back() - numbers.front() + 1, numbers.size()) << "a step is missing";
    EXPECT_GE(numbers.back() + 1, durable_);
    ASSERT_LT(numbers.back(), written_.size());
    std::size_t read = 0;
    const auto visited = reader->for_each_step(numbers, [&](const std::shared_ptr<const Step>& step) -> Result<void> {
      const VariableInfo* variable = step->find("x");
      if (variable == nullptr) return fail(ErrorCode::corrupt, "the value is missing");
      double value = 0;
      if (auto done = step->read_value(*variable, 0, &value); !done) return done;
      EXPECT_EQ(value, written_[step->number()]) << "step " << step->number();
      ++read;
      return {};
    });
    ASSERT_OK(visited);
    EXPECT_EQ(read, numbers.size());
    lost_ += written_.size() - (numbers.back() + 1);
    written_.resize(numbers.back() + 1);
    may_be_gone_ = numbers.front();
  }

  std::unique_ptr<Writer> writer_;
  std::vector<double> written_;  // by step
  double value_ = 0;
  std::uint64_t durable_ = 0;      // as many steps cannot be lost
  std::uint64_t may_be_gone_ = 0;  // as many steps may have been dropped
  std::uint64_t lost_ = 0;         // steps, all in all
};

// crash-matrix: making room for journals | power loss, server and writer, after random numbers of steps and at random operations of writing, segments having made room | the durable prefix or more, each step with its content; the capacity holds, and writing goes on
TEST_F(JournalRoomPower, loss_while_steps_are_written_takes_nothing_that_was_durable) {
  Random random(test_seed());
  for (std::uint64_t round = 0; round < test_count(6) && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    write_until_lent();
    open(Durability::committed);
    if (round % 2 == 0) {
      write_steps(1 + below(random, 1500));
    } else {
      disk_.stop_at(1 + below(random, 2000));
      write_until_stop();
    }
    EXPECT_GT(lent(), 0U);
    lose_power(random);
  }
  EXPECT_GT(lost_, 0U) << "no power loss took anything";
}

// crash-matrix: making room for journals | power loss, server and writer, before a segment's space is given back, and at each of the next five operations | the durable prefix or more, each step with its content; the capacity holds, and writing goes on
TEST_F(JournalRoomPower, loss_while_a_segment_makes_room_takes_nothing_that_was_durable) {
  Random random(test_seed());
  for (std::uint64_t n = 1; n <= test_count(6) && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    write_durable_step();
    open(Durability::committed);
    disk_.stop_from(Operation::free_space, n);
    write_until_stop();
    // Some operations later the journal is shorter, and the segment has its space again.
    if (n <= 6) {
      EXPECT_EQ(lent() > 0, n > 1);
    }
    lose_power(random);
    drop_all_but_ten();
    EXPECT_EQ(lent(), 0U);
    set_retention("all");
  }
}

// crash-matrix: making room for journals | power loss, server and writer, while the steps go for which segments made room: at each first to third operation from the drop on, until all segments have their space again | the durable prefix or more but for what was dropped, each step with its content; the capacity holds, and writing goes on
TEST_F(JournalRoomPower, loss_while_segments_are_taken_back_takes_nothing_that_was_durable) {
  Random random(test_seed());
  bool taken_back = false;
  for (std::uint64_t n = 1; !taken_back && !HasFailure(); n += 1 + below(random, 3)) {
    SCOPED_TRACE(n);
    write_until_lent();
    disk_.stop_at(n);
    drop_all_but_ten();
    taken_back = !disk_.stopped();
    EXPECT_TRUE(disk_.stopped() || lent() == 0);
    lose_power(random);
  }
}

}  // namespace
}  // namespace forebay::testing
