// SPDX-License-Identifier: Apache-2.0
// Steps that begin only when no reader is too far behind, through the raw protocol.
#include <unistd.h>

#include <memory>

#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::Message;
using protocol::MessageType;

class LagWaitsTest : public ServerTest {
 protected:
  static wire::StepBeginT begin(std::uint64_t step, std::uint64_t lag_limit, std::int64_t timeout_ms = -1) {
    wire::StepBeginT request;
    request.step = step;
    request.lag_limit = lag_limit;
    request.timeout_ms = timeout_ms;
    return request;
  }
  static bool begins_at_once(RawClient& client, std::uint64_t step, std::uint64_t lag_limit) {
    // A timeout of zero does not wait.
    return client.call(MessageType::step_begin, begin(step, lag_limit, 0)).type == MessageType::done;
  }
  static void write_steps(RawClient& client, std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t step = first; step < end; ++step) write_step(client, step);
  }
};

TEST_F(LagWaitsTest, without_readers_nothing_waits) {
  RawClient client = writer();
  write_steps(client, 0, 5);
  EXPECT_TRUE(begins_at_once(client, 5, 1));
}

TEST_F(LagWaitsTest, readers_count_with_a_name_and_without_until_they_get_the_step) {
  RawClient client = writer();
  RawClient unnamed = reader(reader_open());
  RawClient named = reader(reader_open("viz"));
  write_steps(client, 0, 2);
  EXPECT_TRUE(begins_at_once(client, 2, 2)) << "two steps behind are not more than two";
  write_step(client, 2);
  const auto pending = client.send(MessageType::step_begin, begin(3, 2));
  EXPECT_FALSE(client.is_answered(pending));
  EXPECT_EQ(wait_step(unnamed)->step->summary->step(), 0U);
  EXPECT_FALSE(client.is_answered(pending)) << "the other is as far behind";
  EXPECT_EQ(wait_step(named)->step->summary->step(), 0U);
  EXPECT_EQ(client.answer(pending).type, MessageType::done);
}

TEST_F(LagWaitsTest, the_deadline_names_the_reader_that_is_furthest_behind) {
  RawClient client = writer();
  RawClient near = reader(reader_open("near"));
  RawClient far = reader(reader_open("far"));
  write_steps(client, 0, 5);
  EXPECT_EQ(wait_step(near)->step->summary->step(), 0U);
  const Message answer = client.call(MessageType::step_begin, begin(5, 2, 1));
  EXPECT_EQ(RawClient::failure(answer), ErrorCode::timeout);
  const std::string text = protocol::failure_of(answer).what;
  EXPECT_NE(text.find("consumer \"far\" of process " + std::to_string(::getpid()) + " is 5 steps behind"),
            std::string::npos)
      << text;
  EXPECT_LT(text.size(), 300U);
  // It may ask again.
  const auto pending = client.send(MessageType::step_begin, begin(5, 4));
  EXPECT_FALSE(client.is_answered(pending));
  EXPECT_EQ(wait_step(far)->step->summary->step(), 0U);
  EXPECT_EQ(client.answer(pending).type, MessageType::done);
}

TEST_F(LagWaitsTest, a_reader_that_goes_or_stops_following_or_seeks_ahead_holds_nobody_up) {
  const auto holds_up_until = [&](const std::string& stream, const auto& let_go) {
    RawClient client = writer(stream);
    write_steps(client, 0, 4);
    auto slow = std::make_unique<RawClient>(reader(reader_open({}, stream)));
    const auto pending = client.send(MessageType::step_begin, begin(4, 1));
    EXPECT_FALSE(client.is_answered(pending));
    let_go(slow);
    EXPECT_EQ(client.answer(pending).type, MessageType::done) << stream;
  };
  holds_up_until("goes", [](auto& slow) { slow.reset(); });
  holds_up_until("leaves", [](auto& slow) { (void)slow->send(MessageType::reader_leave, wire::ReaderLeaveT()); });
  holds_up_until("seeks", [](auto& slow) {
    wire::CursorMoveT move;
    move.epoch = 1;
    move.position = 3;
    move.seek = true;
    (void)slow->send(MessageType::cursor_move, move);
  });
}

TEST_F(LagWaitsTest, readers_that_skip_or_do_not_follow_do_not_count) {
  RawClient client = writer();
  wire::ReaderOpenT latest = reader_open();
  latest.latest_only = true;
  wire::ReaderOpenT random = reader_open();
  random.follow = false;
  RawClient skips = reader(latest);
  RawClient picks = reader(random);
  write_steps(client, 0, 4);
  EXPECT_TRUE(begins_at_once(client, 4, 1));
}

TEST_F(LagWaitsTest, readers_that_share_are_behind_by_their_oldest_step) {
  RawClient client = writer();
  wire::ReaderOpenT asked = reader_open();
  asked.distribution = static_cast<std::uint8_t>(StepDistribution::round_robin);
  RawClient first = reader(asked);
  RawClient second = reader(asked);
  write_steps(client, 0, 4);
  // They take turns: one gets 0 and 2, the other 1 and 3.
  const std::uint64_t begins = wait_step(first)->step->summary->step();
  EXPECT_EQ(wait_step(first)->step->summary->step(), begins + 2);
  const auto pending = client.send(MessageType::step_begin, begin(4, 2));
  EXPECT_FALSE(client.is_answered(pending)) << "a step of before waits for the second";
  EXPECT_EQ(wait_step(second)->step->summary->step(), 1 - begins);
  EXPECT_EQ(client.answer(pending).type, MessageType::done);
}

TEST_F(LagWaitsTest, all_ranks_begin_a_step_once_one_of_them_may) {
  RawClient first = connect();
  RawClient second = connect();
  const auto opening = first.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(second.call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(first.answer(opening).type, MessageType::writer_opened);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto sent = first.send(MessageType::part, part_of(first, step));
    ASSERT_EQ(second.call(MessageType::part, part_of(second, step)).type, MessageType::committed);
    ASSERT_EQ(first.answer(sent).type, MessageType::committed);
  }
  RawClient slow = reader(reader_open());
  const auto asked_first = first.send(MessageType::step_begin, begin(3, 2));
  const auto asked_second = second.send(MessageType::step_begin, begin(3, 2));
  EXPECT_FALSE(first.is_answered(asked_first));
  EXPECT_FALSE(second.is_answered(asked_second));
  (void)wait_step(slow);
  EXPECT_EQ(first.answer(asked_first).type, MessageType::done);
  EXPECT_EQ(second.answer(asked_second).type, MessageType::done);
  // A reader that comes while the step is open stops no rank that begins it late.
  RawClient late = reader(reader_open());
  EXPECT_TRUE(begins_at_once(second, 3, 1));
}

TEST_F(LagWaitsTest, the_loss_of_a_rank_or_of_the_stream_ends_the_wait) {
  RawClient left = connect();
  auto lost = std::make_unique<RawClient>(connect());
  const auto opening = left.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(lost->call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(left.answer(opening).type, MessageType::writer_opened);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto sent = left.send(MessageType::part, part_of(left, step));
    ASSERT_EQ(lost->call(MessageType::part, part_of(*lost, step)).type, MessageType::committed);
    ASSERT_EQ(left.answer(sent).type, MessageType::committed);
  }
  RawClient slow = reader(reader_open());
  auto pending = left.send(MessageType::step_begin, begin(3, 1));
  EXPECT_FALSE(left.is_answered(pending));
  lost.reset();
  EXPECT_EQ(RawClient::failure(left.answer(pending)), ErrorCode::group_broken);

  RawClient again = writer();
  pending = again.send(MessageType::step_begin, begin(3, 1));
  EXPECT_FALSE(again.is_answered(pending));
  wire::StreamRemoveT remove;
  remove.reservation = "res";
  remove.stream = "flow";
  remove.force = true;
  EXPECT_EQ(connect().call(MessageType::stream_remove, remove).type, MessageType::done);
  EXPECT_EQ(RawClient::failure(again.answer(pending)), ErrorCode::not_found);
}

TEST_F(LagWaitsTest, another_step_than_the_next_is_refused) {
  RawClient client = writer();
  EXPECT_EQ(RawClient::failure(client.call(MessageType::step_begin, begin(1, 1))), ErrorCode::protocol);
}

}  // namespace
}  // namespace forebay::testing
