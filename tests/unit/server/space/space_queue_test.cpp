// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/space/space_queue.h"

#include "tests/unit/server/space/space_fixture.h"

namespace forebay::server {
namespace {

/// A stream that has the whole reservation, and might give it back.
class SpaceQueueTest : public SpaceTest {
 protected:
  using Answer = std::optional<Result<std::vector<Extent>>>;

  void SetUp() override {
    SpaceTest::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    holder_ = std::make_unique<StatedStream>(*space_, 1);
    held_ = fill(*holder_, 4 * mib);
    holder_->granted = 4 * mib;
  }
  void TearDown() override {
    holder_.reset();
    space_.reset();
  }

  /// Stands in the queue; what it is told is in the answer.
  std::unique_ptr<Answer> wait(StatedStream& stream, std::uint64_t order, std::uint64_t bytes,
                               WhenFull when_full = WhenFull::block, std::int64_t timeout_ms = -1) {
    auto answer = std::make_unique<Answer>();
    SpaceWaiter waiter;
    waiter.order = order;
    waiter.bytes = bytes;
    waiter.when_full = when_full;
    waiter.user = &stream;
    waiter.owner = stream.owner();
    waiter.answer = [told = answer.get()](Result<std::vector<Extent>> result) { *told = std::move(result); };
    space_->queue().wait(std::move(waiter), timeout_ms);
    return answer;
  }
  /// One of the holder's segments comes free, for everybody.
  void release_segment() {
    const Extent extent{released_++, 0, mib};
    space_->release(extent);
    space_->map().set_owner(extent.segment, std::nullopt);
    holder_->granted -= mib;
  }
  static bool is_granted(const Answer& answer) { return answer && answer->has_value(); }
  static std::string error_of(const Answer& answer) {
    return answer && !answer->has_value() ? answer->error().message() : std::string();
  }

  std::unique_ptr<StatedStream> holder_;
  std::vector<Extent> held_;
  std::uint32_t released_ = 0;
};

TEST_F(SpaceQueueTest, serves_in_the_order_of_steps_not_of_asking) {
  StatedStream late(*space_, 2);
  StatedStream early(*space_, 3);
  const auto late_answer = wait(late, 2, mib);
  const auto early_answer = wait(early, 1, mib);
  release_segment();
  EXPECT_FALSE(*early_answer) << "served in the midst of what made the space";
  settle();
  EXPECT_TRUE(is_granted(*early_answer));
  EXPECT_FALSE(*late_answer);
  release_segment();
  settle();
  EXPECT_TRUE(is_granted(*late_answer));
  EXPECT_TRUE(space_->queue().is_empty());
}

TEST_F(SpaceQueueTest, the_first_in_it_is_not_overtaken_by_who_needs_less) {
  StatedStream large(*space_, 2);
  StatedStream small(*space_, 3);
  const auto large_answer = wait(large, 1, 2 * mib);
  const auto small_answer = wait(small, 2, mib);
  release_segment();
  settle();
  EXPECT_FALSE(*large_answer);
  EXPECT_FALSE(*small_answer);
  EXPECT_FALSE(space_->queue().is_next(3));
  EXPECT_TRUE(space_->queue().is_next(1));
}

TEST_F(SpaceQueueTest, refuses_at_once_what_nothing_can_free) {
  holder_->granted = 0;
  StatedStream stream(*space_, 2);
  const auto answer = wait(stream, 1, mib);
  EXPECT_NE(error_of(*answer).find("nothing that could free space is under way"), std::string::npos)
      << error_of(*answer);
  EXPECT_EQ((*answer)->error().code, ErrorCode::no_space);
  EXPECT_TRUE(space_->queue().is_empty());
}

TEST_F(SpaceQueueTest, refuses_more_than_the_reservation_has) {
  StatedStream stream(*space_, 2);
  EXPECT_FALSE(error_of(*wait(stream, 1, 5 * mib)).empty());
}

TEST_F(SpaceQueueTest, ends_a_wait_when_its_last_hope_goes) {
  StatedStream stream(*space_, 2);
  const auto answer = wait(stream, 1, mib);
  settle();
  ASSERT_FALSE(*answer);
  holder_->granted = 0;
  space_->queue().changed(SpaceChange::less);
  settle();
  EXPECT_NE(error_of(*answer).find("under way any more"), std::string::npos) << error_of(*answer);
}

TEST_F(SpaceQueueTest, the_last_gives_way_when_those_who_wait_hold_what_they_wait_for) {
  StatedStream first(*space_, 2);
  StatedStream last(*space_, 3);
  first.granted = mib;
  last.granted = mib;
  const auto first_answer = wait(first, 1, mib);
  const auto last_answer = wait(last, 2, mib);
  settle();
  ASSERT_FALSE(*first_answer);
  ASSERT_FALSE(*last_answer);
  holder_->granted = 0;
  space_->queue().changed(SpaceChange::less);
  settle();
  EXPECT_NE(error_of(*last_answer).find("an earlier step waits"), std::string::npos) << error_of(*last_answer);
  // The last one's step ends, and gives back what it held.
  EXPECT_FALSE(*first_answer);
  release_segment();
  settle();
  EXPECT_TRUE(is_granted(*first_answer));
}

TEST_F(SpaceQueueTest, with_error_waits_for_a_sync_and_nothing_else) {
  StatedStream stream(*space_, 2);
  EXPECT_NE(error_of(*wait(stream, 1, mib, WhenFull::error)).find("WhenFull=error"), std::string::npos);
  holder_->syncs = true;
  const auto answer = wait(stream, 1, mib, WhenFull::error);
  settle();
  ASSERT_FALSE(*answer);
  holder_->syncs = false;
  space_->queue().changed(SpaceChange::less);
  settle();
  EXPECT_NE(error_of(*answer).find("WhenFull=error"), std::string::npos) << error_of(*answer);
}

TEST_F(SpaceQueueTest, with_drop_oldest_takes_the_steps_of_its_own_stream) {
  holder_->steps.push_back(held_);
  holder_->granted = 0;
  const auto answer = wait(*holder_, 1, mib, WhenFull::drop_oldest);
  settle();
  EXPECT_TRUE(is_granted(*answer)) << error_of(*answer);
}

TEST_F(SpaceQueueTest, does_not_ask_for_space_where_only_less_is_to_come) {
  StatedStream stream(*space_, 2);
  const auto answer = wait(stream, 1, mib);
  settle();
  const int asked = holder_->retention_applied;
  space_->queue().changed(SpaceChange::less);
  settle();
  EXPECT_EQ(holder_->retention_applied, asked);
  space_->queue().changed(SpaceChange::more);
  settle();
  EXPECT_GT(holder_->retention_applied, asked);
  EXPECT_FALSE(*answer);
}

TEST_F(SpaceQueueTest, looks_once_for_all_that_happened_meanwhile) {
  StatedStream stream(*space_, 2);
  const auto answer = wait(stream, 1, mib);
  settle();
  const int asked = holder_->retention_applied;
  space_->queue().changed(SpaceChange::more);
  settle();
  const int asked_in_one_look = holder_->retention_applied - asked;
  for (int change = 0; change < 100; ++change) space_->queue().changed(SpaceChange::more);
  settle();
  EXPECT_EQ(holder_->retention_applied, asked + 2 * asked_in_one_look);
  EXPECT_FALSE(*answer);
}

TEST_F(SpaceQueueTest, a_deadline_ends_the_wait_and_lets_the_next_one_pass) {
  StatedStream large(*space_, 2);
  StatedStream small(*space_, 3);
  const auto large_answer = wait(large, 1, 3 * mib, WhenFull::block, 20);
  const auto small_answer = wait(small, 2, mib);
  release_segment();
  settle();
  while (!*large_answer || !*small_answer) settle();
  EXPECT_NE(error_of(*large_answer).find("the deadline"), std::string::npos) << error_of(*large_answer);
  EXPECT_TRUE(is_granted(*small_answer)) << error_of(*small_answer);
}

TEST_F(SpaceQueueTest, the_end_of_a_group_ends_its_waits_alone) {
  StatedStream ended(*space_, 2);
  StatedStream other(*space_, 3);
  const auto first_rank = wait(ended, 1, mib);
  const auto second_rank = wait(ended, 1, mib);
  const auto other_answer = wait(other, 2, mib);
  space_->queue().end_waits(ended, {ErrorCode::group_broken, "a rank was lost", "stream run1/stream2"});
  EXPECT_EQ((*first_rank)->error().code, ErrorCode::group_broken);
  EXPECT_EQ((*second_rank)->error().code, ErrorCode::group_broken);
  EXPECT_FALSE(*other_answer);
  release_segment();
  settle();
  EXPECT_TRUE(is_granted(*other_answer));
}

TEST_F(SpaceQueueTest, who_lacks_room_for_a_record_keeps_nobody_waiting) {
  StatedStream crowded(*space_, 2);
  StatedStream other(*space_, 3);
  crowded.journal.record = 100 * mib;
  const auto crowded_answer = wait(crowded, 1, mib);
  release_segment();
  settle();
  ASSERT_FALSE(*crowded_answer) << error_of(*crowded_answer);
  EXPECT_TRUE(space_->queue().is_next(2));
  const auto other_answer = wait(other, 2, mib);
  settle();
  EXPECT_TRUE(is_granted(*other_answer)) << error_of(*other_answer);
  EXPECT_FALSE(*crowded_answer);
  // And when nobody can make that room any more, the error names it.
  holder_->granted = 0;
  space_->queue().changed(SpaceChange::less);
  settle();
  EXPECT_FALSE(error_of(*crowded_answer).empty());
}

}  // namespace
}  // namespace forebay::server
