// SPDX-License-Identifier: Apache-2.0
// A reader that stays, and gets no memory where it lets go of steps or takes many at once: no step stays held for it.
#include <vector>

#include "tests/unit/client/faults/failing_memory_fixture.h"

namespace forebay::testing {
namespace {

class FailingReleases : public FailingMemoryTest {
 protected:
  void SetUp() override {
    FailingMemoryTest::SetUp();
    writer_options_.retention.reset();
    const auto writing = writer();
    for (std::uint64_t number = 0; number < steps_; ++number) {
      write_whole_step(*writing);
      numbers_.push_back(number);
    }
  }
  /// Once the server has heard of all that this reader let go of, by whichever connection. It goes on reading.
  static void check_nothing_is_held(Reader& reading) {
    const Deadline deadline = Deadline::after_ms(10'000);
    const auto held = [&] {
      const auto steps = reading.steps();
      EXPECT_TRUE(steps) << steps.error().message();
      return !steps || std::ranges::any_of(*steps, [](const StepSummary& step) { return step.pins > 0; });
    };
    EXPECT_TRUE(reading.step(0));
    while (held() && !deadline.passed()) std::this_thread::yield();
    EXPECT_FALSE(held()) << "a step is held by nobody";
  }

  static constexpr std::uint64_t steps_ = 12;
  std::vector<std::uint64_t> numbers_;
};

// crash-matrix: no memory | reader, any allocation of letting go of a step, once, and from then on | nothing stays held; the same reader goes on
TEST_F(FailingReleases, a_step_that_was_let_go_is_not_held) {
  const auto reading = reader_at_random();
  sweep_failures(1, [&](std::uint64_t n, bool lasting) {
    auto step = reading->step(1);
    if (!step) {
      ADD_FAILURE() << step.error().message();
      return false;
    }
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      step->reset();
      return {};
    });
    check_nothing_is_held(*reading);
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation of taking many steps by number, once, and from then on | nothing stays held; the same reader goes on
TEST_F(FailingReleases, steps_on_their_way_to_a_call_that_has_no_memory_are_not_held) {
  const auto reading = reader_at_random();
  sweep_failures(100, [&](std::uint64_t n, bool lasting) {
    const auto visit = [](const std::shared_ptr<const Step>&) -> Result<void> { return {}; };
    const bool failed = fails_at(n, lasting, [&] { return reading->for_each_step(numbers_, visit); });
    check_nothing_is_held(*reading);
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation once it is to stop taking many steps, once, and from then on | nothing stays held; the same reader goes on
TEST_F(FailingReleases, steps_on_their_way_to_a_call_that_is_interrupted_are_not_held) {
  bool interrupted = false;
  ReaderOptions options;
  options.follow = false;
  options.interrupt = [&interrupted] { return interrupted; };
  auto reading = Reader::open(address_, options);
  ASSERT_OK(reading);
  sweep_failures(5, [&](std::uint64_t n, bool lasting) {
    std::optional<FailingMemory> memory;
    const auto visit = [&](const std::shared_ptr<const Step>& step) -> Result<void> {
      if (step->number() < 2) return {};
      auto stop = fail(ErrorCode::cancelled, "it is to stop");
      interrupted = true;
      memory.emplace(n, lasting);
      return stop;
    };
    try {
      EXPECT_FALSE((*reading)->for_each_step(numbers_, visit));
    } catch (const std::bad_alloc&) {
    }
    const bool failed = FailingMemory::has_failed();
    memory.reset();
    interrupted = false;
    check_nothing_is_held(**reading);
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation of taking the step behind one that it could not read, once, and from then on | the same reader has it next, and is told how many steps it has missed
TEST_F(FailingReleases, what_a_reader_has_missed_is_told_with_the_next_step_that_it_gets) {
  server_.share_with_clients();
  reader_options_.consumer.clear();
  writer_options_.retention = Retention{.last = 3, .consumers = {}, .precious_every = 0};
  sweep_failures(10, [&](std::uint64_t n, bool lasting) {
    write_whole_step(*writer());
    const auto reading = reader();
    const std::uint64_t from = reading->position();
    const auto writing = writer();
    for (int i = 0; i < 5; ++i) write_whole_step(*writing);
    server_.disk().fail_read_at(1);
    const auto unreadable = reading->next(10'000);
    EXPECT_FALSE(unreadable);
    std::uint64_t skipped = 0;
    std::shared_ptr<const Step> step;
    const auto take = [&]() -> Result<void> {
      auto next = reading->next(10'000);
      if (!next) return fail(std::move(next.error()));
      skipped += next->skipped;
      step = std::move(next->step);
      return {};
    };
    const bool failed = fails_at(n, lasting, take);
    while (!step && !HasFailure()) EXPECT_TRUE(take());
    if (step) {
      // All before it but the one that could not be read.
      EXPECT_EQ(skipped, step->number() - from - 1);
    }
    return failed;
  });
}

}  // namespace
}  // namespace forebay::testing
