// SPDX-License-Identifier: Apache-2.0
// Reader groups through the raw protocol: how they form, that all ranks get the same answers, and how they end.
#include <sys/socket.h>

#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::Message;
using protocol::MessageType;

constexpr auto kind_of(NextStep::Kind kind) {
  return static_cast<std::uint8_t>(kind);
}

class ReaderGroupsTest : public ServerTest {
 protected:
  static wire::ReaderOpenT rank_open(std::uint32_t rank, std::uint32_t ranks = 2, const std::string& consumer = {}) {
    wire::ReaderOpenT asked = reader_open(consumer);
    asked.rank = rank;
    asked.ranks = ranks;
    asked.ranks_source = "a test";
    asked.group = "job-1";
    return asked;
  }
  /// Both ranks of a group, or more, in order.
  std::vector<RawClient> group(const std::function<void(wire::ReaderOpenT&)>& change = {}, std::uint32_t ranks = 2) {
    std::vector<RawClient> clients;
    std::vector<std::uint32_t> requests;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      wire::ReaderOpenT asked = rank_open(rank, ranks);
      if (change) change(asked);
      clients.push_back(connect());
      requests.push_back(clients.back().send(MessageType::reader_open, asked));
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(clients[rank].answer(requests[rank]).type, MessageType::reader_opened);
    return clients;
  }
  static std::uint32_t ask(RawClient& client, std::uint64_t turn, std::int64_t timeout_ms = -1) {
    wire::StepWaitT wait;
    wait.turn = turn;
    wait.timeout_ms = timeout_ms;
    return client.send(MessageType::step_wait, wait);
  }
  static std::unique_ptr<wire::StepEventT> event(RawClient& client, std::uint32_t request) {
    return RawClient::unpack<wire::StepEvent>(client.answer(request));
  }
  static std::uint64_t number_of(const wire::StepEventT& event) {
    return event.step ? event.step->summary->step() : ~std::uint64_t{0};
  }
  /// The step that all of them get in this turn.
  static std::uint64_t turn_of(std::vector<RawClient>& ranks, std::uint64_t turn) {
    std::vector<std::uint32_t> requests;
    for (RawClient& rank : ranks) requests.push_back(ask(rank, turn));
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto brought = event(ranks[i], requests[i]);
      EXPECT_EQ(brought->turn, turn);
      if (i == 0) number = number_of(*brought);
      EXPECT_EQ(number_of(*brought), number);
    }
    return number;
  }
  static void release(RawClient& client, std::uint64_t step, std::uint32_t epoch = 1) {
    wire::StepReleaseT release;
    release.steps.emplace_back(step, epoch, 0);
    (void)client.send(MessageType::step_release, release);
  }
  RawClient keeping(const std::string& retention) {
    RawClient client = connect();
    wire::WriterOpenT asked = writer_open();
    asked.retention = retention;
    EXPECT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
    return client;
  }
};

TEST_F(ReaderGroupsTest, a_hundred_steps_dropped_between_two_ranks_calls_mix_nothing) {
  RawClient client = keeping("last:1");
  std::vector<RawClient> ranks = group();
  write_step(client, 0);
  const std::uint32_t first = ask(ranks[0], 1);
  for (std::uint64_t step = 1; step <= 100; ++step) write_step(client, step);
  EXPECT_FALSE(ranks[0].is_answered(first)) << "rank 1 has not asked";
  const std::uint32_t second = ask(ranks[1], 1);
  EXPECT_EQ(number_of(*event(ranks[0], first)), 100U);
  EXPECT_EQ(number_of(*event(ranks[1], second)), 100U);
  // The other one after the other way round.
  for (std::uint64_t step = 101; step <= 200; ++step) write_step(client, step);
  EXPECT_EQ(turn_of(ranks, 2), 200U);
  EXPECT_TRUE(problems().empty());
}

TEST_F(ReaderGroupsTest, a_step_stays_until_the_last_rank_has_ended_it) {
  RawClient client = keeping("last:1");
  std::vector<RawClient> ranks = group();
  write_step(client, 0);
  EXPECT_EQ(turn_of(ranks, 1), 0U);
  release(ranks[0], 0);
  write_step(client, 1);
  EXPECT_FALSE(ranks[0].is_answered(ask(ranks[0], 2)));
  EXPECT_EQ(stream()->oldest, 0U);
  release(ranks[1], 0);
  (void)ranks[1].call(MessageType::segments_get, wire::SegmentsGetT());
  EXPECT_EQ(stream()->oldest, 1U);
}

TEST_F(ReaderGroupsTest, ranks_that_poll_never_diverge) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group();
  const std::uint32_t first = ask(ranks[0], 1, 0);
  EXPECT_FALSE(ranks[0].is_answered(first)) << "it waits for the other rank";
  const std::uint32_t second = ask(ranks[1], 1, 0);
  EXPECT_EQ(event(ranks[0], first)->kind, kind_of(NextStep::Kind::not_ready));
  EXPECT_EQ(event(ranks[1], second)->kind, kind_of(NextStep::Kind::not_ready));
  const std::uint32_t third = ask(ranks[1], 2, 0);
  write_step(client, 0);
  const std::uint32_t fourth = ask(ranks[0], 2, 0);
  EXPECT_EQ(number_of(*event(ranks[1], third)), 0U);
  EXPECT_EQ(number_of(*event(ranks[0], fourth)), 0U);
}

TEST_F(ReaderGroupsTest, the_shortest_timeout_counts_once_all_have_asked) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group();
  const std::uint32_t first = ask(ranks[0], 1, 1);
  const std::uint32_t second = ask(ranks[1], 1, 600'000);
  EXPECT_EQ(event(ranks[0], first)->kind, kind_of(NextStep::Kind::not_ready));
  EXPECT_EQ(event(ranks[1], second)->kind, kind_of(NextStep::Kind::not_ready));
}

TEST_F(ReaderGroupsTest, a_rank_that_does_not_come_fails_all_by_name) {
  RawClient client = writer();
  wire::ReaderOpenT asked = rank_open(0, 3);
  asked.open_timeout_ms = 20;
  RawClient first = connect();
  const auto failed = RawClient::unpack<wire::Failure>(first.call(MessageType::reader_open, asked));
  EXPECT_EQ(static_cast<ErrorCode>(failed->code), ErrorCode::timeout);
  EXPECT_NE(failed->what.find("ranks 1, 2 of 3"), std::string::npos) << failed->what;
  EXPECT_NE(failed->what.find("Ranks=1"), std::string::npos) << failed->what;
}

TEST_F(ReaderGroupsTest, ranks_that_contradict_each_other_fail_all) {
  RawClient client = writer();
  const auto contradicts = [&](const std::function<void(wire::ReaderOpenT&)>& change) {
    RawClient first = connect();
    RawClient second = connect();
    const std::uint32_t request = first.send(MessageType::reader_open, rank_open(0));
    EXPECT_FALSE(first.is_answered(request));
    wire::ReaderOpenT asked = rank_open(1);
    change(asked);
    const auto code = RawClient::failure(second.call(MessageType::reader_open, asked));
    EXPECT_EQ(RawClient::failure(first.answer(request)), code);
    return code;
  };
  EXPECT_EQ(contradicts([](auto& asked) { asked.ranks = 3; }), ErrorCode::invalid_argument);
  EXPECT_EQ(contradicts([](auto& asked) { asked.rank = 0; }), ErrorCode::busy);
  EXPECT_EQ(contradicts([](auto& asked) { asked.latest_only = true; }), ErrorCode::invalid_argument);
  EXPECT_EQ(contradicts([](auto& asked) { asked.start_kind = 3; }), ErrorCode::invalid_argument);
  (void)group();
}

TEST_F(ReaderGroupsTest, consumers_groups_and_opens_do_not_meet) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group();
  for (const int other : {0, 1, 2}) {
    RawClient second = connect();
    wire::ReaderOpenT asked = rank_open(0, 2, other == 0 ? "render" : "");
    if (other == 1) asked.group = "job-2";
    if (other == 2) asked.ordinal = 1;
    EXPECT_FALSE(second.is_answered(second.send(MessageType::reader_open, asked)));
  }
  (void)group([](auto& asked) { asked.ordinal = 1; });
}

TEST_F(ReaderGroupsTest, a_rank_that_is_lost_ends_the_group_by_name) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group({}, 3);
  const std::uint32_t first = ask(ranks[0], 1);
  {
    const RawClient gone = std::move(ranks[1]);
  }
  const auto told = RawClient::unpack<wire::Failure>(ranks[0].answer(first));
  EXPECT_EQ(static_cast<ErrorCode>(told->code), ErrorCode::group_broken);
  EXPECT_NE(told->what.find("rank 1 of 3"), std::string::npos) << told->what;
  EXPECT_EQ(RawClient::failure(ranks[2].answer(ask(ranks[2], 1))), ErrorCode::group_broken) << "the others, too";
  // It comes back alone.
  RawClient again = connect();
  EXPECT_EQ(RawClient::failure(again.call(MessageType::reader_open, rank_open(1, 3))), ErrorCode::group_broken);
  ranks.clear();
  ranks = group({}, 3);
  write_step(client, 0);
  EXPECT_EQ(turn_of(ranks, 1), 0U) << "all of them do, and are another group";
}

TEST_F(ReaderGroupsTest, a_group_goes_on_without_a_rank_until_that_joins_again) {
  RawClient client = writer();
  const auto go_on = [](wire::ReaderOpenT& asked) { asked.on_reader_lost = 1; };
  std::vector<RawClient> ranks = group(go_on);
  write_step(client, 0);
  EXPECT_EQ(turn_of(ranks, 1), 0U);
  const std::uint32_t second = ask(ranks[0], 2);
  ranks.pop_back();
  write_step(client, 1);
  const auto alone = event(ranks[0], second);
  EXPECT_EQ(number_of(*alone), 1U);
  EXPECT_EQ(alone->gone, std::vector<std::uint32_t>{1});
  RawClient again = connect();
  wire::ReaderOpenT asked = rank_open(1);
  go_on(asked);
  const auto opened = RawClient::unpack<wire::ReaderOpened>(again.call(MessageType::reader_open, asked));
  EXPECT_EQ(opened->turn, 2U);
  ranks.push_back(std::move(again));
  write_step(client, 2);
  EXPECT_EQ(turn_of(ranks, 3), 2U);
}

TEST_F(ReaderGroupsTest, a_rank_that_closes_early_is_not_waited_for) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group();
  const std::uint32_t first = ask(ranks[0], 1);
  (void)ranks[1].send(MessageType::reader_leave, wire::ReaderLeaveT());
  write_step(client, 0);
  EXPECT_EQ(number_of(*event(ranks[0], first)), 0U);
  ranks.pop_back();
  write_step(client, 1);
  EXPECT_EQ(number_of(*event(ranks[0], ask(ranks[0], 2))), 1U);
}

TEST_F(ReaderGroupsTest, a_rank_that_does_not_ask_in_time_is_lost) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group([](auto& asked) { asked.turn_timeout_ms = 20; });
  const auto told = RawClient::unpack<wire::Failure>(ranks[0].answer(ask(ranks[0], 1)));
  EXPECT_EQ(static_cast<ErrorCode>(told->code), ErrorCode::group_broken);
  EXPECT_NE(told->what.find("TurnTimeoutSecs"), std::string::npos) << told->what;
  EXPECT_EQ(RawClient::failure(ranks[1].answer(ask(ranks[1], 1))), ErrorCode::group_broken);
}

TEST_F(ReaderGroupsTest, a_consumers_cursor_moves_when_all_ranks_have_passed) {
  RawClient client = writer();
  std::vector<RawClient> ranks;
  RawClient first = connect();
  RawClient second = connect();
  const std::uint32_t request = first.send(MessageType::reader_open, rank_open(0, 2, "render"));
  ASSERT_EQ(second.call(MessageType::reader_open, rank_open(1, 2, "render")).type, MessageType::reader_opened);
  ASSERT_EQ(first.answer(request).type, MessageType::reader_opened);
  ranks.push_back(std::move(first));
  ranks.push_back(std::move(second));
  write_step(client, 0);
  EXPECT_EQ(turn_of(ranks, 1), 0U);
  wire::CursorMoveT move;
  move.epoch = 1;
  move.position = 1;
  EXPECT_EQ(ranks[1].call(MessageType::cursor_move, move).type, MessageType::done);
  ASSERT_EQ(stream()->consumers.size(), 1U) << "a group is one consumer";
  EXPECT_EQ(stream()->consumers.front()->position, 0U);
  EXPECT_EQ(ranks[0].call(MessageType::cursor_move, move).type, MessageType::done);
  EXPECT_EQ(stream()->consumers.front()->position, 1U);
  move.seek = true;
  EXPECT_EQ(RawClient::failure(ranks[0].call(MessageType::cursor_move, move)), ErrorCode::unsupported);
  // Others of this name are refused, as with one reader.
  RawClient other = connect();
  EXPECT_EQ(RawClient::failure(other.call(MessageType::reader_open, reader_open("render"))), ErrorCode::busy);
}

TEST_F(ReaderGroupsTest, steps_are_shared_out_and_readers_counted_by_groups) {
  RawClient client = connect();
  wire::WriterOpenT open = writer_open();
  open.rendezvous_readers = 2;
  const std::uint32_t opening = client.send(MessageType::writer_open, open);
  RawClient maker = writer("other");
  const auto in_turn = [](std::uint64_t ordinal) {
    return [ordinal](wire::ReaderOpenT& asked) {
      asked.distribution = static_cast<std::uint8_t>(StepDistribution::round_robin);
      asked.ordinal = ordinal;
      asked.wait_for_writer = false;
    };
  };
  std::vector<RawClient> first = group(in_turn(0));
  EXPECT_FALSE(client.is_answered(opening)) << "two ranks are one reader";
  std::vector<RawClient> second = group(in_turn(1));
  ASSERT_EQ(client.answer(opening).type, MessageType::writer_opened);
  for (std::uint64_t step = 0; step < 4; ++step) write_step(client, step);
  const std::uint64_t a = turn_of(first, 1);
  const std::uint64_t b = turn_of(second, 1);
  EXPECT_NE(a, b);
  EXPECT_EQ(turn_of(first, 2), a + 2);
  EXPECT_EQ(turn_of(second, 2), b + 2);
}

TEST_F(ReaderGroupsTest, the_list_of_steps_is_that_of_the_open) {
  RawClient client = keeping("last:2");
  write_step(client, 0);
  write_step(client, 1);
  std::vector<RawClient> ranks = group([](auto& asked) { asked.follow = false; });
  wire::StepsQueryT query;
  query.steps_max = 100;
  const auto numbers = [&](RawClient& rank) {
    std::vector<std::uint64_t> found;
    const auto answer = RawClient::unpack<wire::StepsAnswer>(rank.call(MessageType::steps_query, query));
    for (const auto& step : answer->steps) found.push_back(step.step());
    return found;
  };
  EXPECT_EQ(numbers(ranks[0]), (std::vector<std::uint64_t>{0, 1}));
  write_step(client, 2);
  write_step(client, 3);
  EXPECT_EQ(numbers(ranks[1]), (std::vector<std::uint64_t>{0, 1})) << "although they are gone";
  EXPECT_EQ(RawClient::failure(ranks[1].call(MessageType::step_get, wire::StepGetT())), ErrorCode::step_gone);
}

TEST_F(ReaderGroupsTest, a_stream_that_is_removed_ends_the_group_for_all) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group();
  const std::uint32_t first = ask(ranks[0], 1);
  ASSERT_EQ(client.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  wire::StreamRemoveT removal;
  removal.reservation = "res";
  removal.stream = "flow";
  removal.force = true;
  ASSERT_EQ(connect().call(MessageType::stream_remove, removal).type, MessageType::done);
  EXPECT_EQ(RawClient::failure(ranks[0].answer(first)), ErrorCode::not_found);
  EXPECT_EQ(RawClient::failure(ranks[1].answer(ask(ranks[1], 1))), ErrorCode::not_found);
}

TEST_F(ReaderGroupsTest, a_group_is_one_row_among_those_who_wait) {
  RawClient client = writer();
  std::vector<RawClient> ranks = group({}, 3);
  (void)ask(ranks[0], 1);
  EXPECT_FALSE(ranks[2].is_answered(ask(ranks[2], 1)));
  auto waits = std::move(stream()->waits);
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits.front()->waits_for, "rank 1 to ask for the next step");
  EXPECT_FALSE(ranks[1].is_answered(ask(ranks[1], 1)));
  waits = std::move(stream()->waits);
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits.front()->waits_for, "step 0");
  EXPECT_NE(waits.front()->who.find("3 ranks"), std::string::npos) << waits.front()->who;
}

}  // namespace
}  // namespace forebay::testing
