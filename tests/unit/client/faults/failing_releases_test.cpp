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

}  // namespace
}  // namespace forebay::testing
