// SPDX-License-Identifier: Apache-2.0
// More steps are held at once than the server's table of pins has slots.
#include <deque>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

constexpr std::size_t slots = 16384;

class FullPinTable : public StreamTest {
 protected:
  /// Lets one reader hold as many steps as the table has slots.
  void SetUp() override {
    StreamTest::SetUp();
    writer_ = open_writer();
    ReaderOptions options;
    options.consumer = "keeper";
    keeper_ = open_reader(options);
    while (kept_.size() < slots) {
      ASSERT_NO_FATAL_FAILURE(write_step(*writer_, 1, static_cast<double>(kept_.size())));
      auto next = keeper_->next(10'000);
      ASSERT_OK(next);
      ASSERT_EQ(next->kind, NextStep::Kind::step);
      kept_.push_back(std::move(next->step));
    }
    EXPECT_TRUE(kept_.back()->pinned());
  }

  void let_go_of_one() {
    kept_.pop_front();
    // Comes behind the release on the same connection.
    ASSERT_OK(keeper_->acknowledge(*kept_.front()));
  }
  void check_kept() {
    for (const auto& step : kept_) {
      ASSERT_TRUE(step->pinned());
      ASSERT_EQ(read_step(*step), std::vector<double>{static_cast<double>(step->number())});
    }
  }

  std::unique_ptr<Writer> writer_;
  std::unique_ptr<Reader> keeper_;
  std::deque<std::shared_ptr<const Step>> kept_;
};

// crash-matrix: holding steps | server, killed while its table of pins is full | what all of them hold; more than that is read without a pin
TEST_F(FullPinTable, gives_others_steps_without_a_pin_until_one_is_let_go_of) {
  const auto step_for = [&](const std::string& consumer) {
    ReaderOptions options;
    options.consumer = consumer;
    const auto next = open_reader(options)->next(10'000);
    EXPECT_TRUE(next) << next.error().message();
    EXPECT_EQ(read_step(*next->step), std::vector<double>{0.0});
    return next->step;
  };
  EXPECT_FALSE(step_for("late")->pinned());
  server_.kill();
  server_.start();
  EXPECT_FALSE(step_for("later")->pinned());
  check_kept();
  let_go_of_one();
  EXPECT_TRUE(step_for("last")->pinned());
}

TEST_F(FullPinTable, refuses_a_step_whose_memory_the_writer_still_holds_until_there_is_a_slot) {
  const Dimensions shape{1};
  const Dimensions zeros{0};
  ASSERT_OK(writer_->begin_step());
  auto memory = writer_->allocate(whole<double>("T", shape, zeros));
  ASSERT_OK(memory);
  *reinterpret_cast<double*>(memory->bytes.data()) = static_cast<double>(slots);
  const auto refused = writer_->end_step();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::no_space);
  EXPECT_NE(refused.error().message().find("table of pins is full"), std::string::npos) << refused.error().message();
  let_go_of_one();
  ASSERT_OK(writer_->end_step());
  check_kept();
  const auto step = keeper_->next(10'000);
  ASSERT_OK(step);
  EXPECT_FALSE(step->step->pinned());
  EXPECT_EQ(read_step(*step->step), std::vector<double>{static_cast<double>(slots)});
}

}  // namespace
}  // namespace forebay::testing
