// SPDX-License-Identifier: Apache-2.0
// Readers that name a run, or wait for a living writer: when they begin, which steps they take, and when they end.
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::MessageType;

class RunsTest : public ServerTest {
 protected:
  static wire::WriterOpenT write_run(const std::string& run, WriteMode mode = WriteMode::append) {
    wire::WriterOpenT asked = writer_open();
    asked.run = run;
    asked.mode = static_cast<std::uint8_t>(mode);
    return asked;
  }
  static wire::ReaderOpenT read_run(const std::string& run, const std::string& consumer = {}) {
    wire::ReaderOpenT asked = reader_open(consumer);
    asked.run = run;
    return asked;
  }
  static wire::ReaderOpenT waiting_for_writer(const std::string& run = {}) {
    wire::ReaderOpenT asked = read_run(run);
    asked.wait_for_writer = true;
    return asked;
  }
  RawClient group(const wire::WriterOpenT& asked) {
    RawClient client = connect();
    EXPECT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
    return client;
  }
  static void close(RawClient& client) {
    EXPECT_EQ(client.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  }
  /// A run of these steps that has ended.
  void finished_run(const std::string& run, std::uint64_t first, std::uint64_t end) {
    RawClient client = group(write_run(run));
    for (std::uint64_t step = first; step < end; ++step) write_step(client, step);
    close(client);
  }
  static std::uint64_t next_number(RawClient& client) {
    const auto event = wait_step(client);
    return event->step ? event->step->summary->step() : ~std::uint64_t{0};
  }
  static void expect_end(RawClient& client, StreamStatus status) {
    const auto event = wait_step(client);
    EXPECT_EQ(event->kind, static_cast<std::uint8_t>(NextStep::Kind::end_of_stream));
    EXPECT_EQ(event->status, static_cast<std::uint8_t>(status)) << event->text;
  }
  static std::uint64_t first_step_of(const protocol::Message& opened) {
    EXPECT_EQ(opened.type, MessageType::reader_opened);
    return opened.type == MessageType::reader_opened ? RawClient::unpack<wire::ReaderOpened>(opened)->first_step : 0;
  }
  static std::optional<ErrorCode> get(RawClient& client, std::uint64_t step) {
    wire::StepGetT asked;
    asked.step = step;
    const auto answer = client.call(MessageType::step_get, asked);
    return RawClient::failure(answer);
  }
  static std::vector<std::uint64_t> list(RawClient& client) {
    wire::StepsQueryT query;
    query.reservation = "res";
    query.stream = "flow";
    query.steps_max = 100;
    std::vector<std::uint64_t> numbers;
    const auto steps = RawClient::unpack<wire::StepsAnswer>(client.call(MessageType::steps_query, query));
    for (const wire::StepSummary& summary : steps->steps) numbers.push_back(summary.step());
    return numbers;
  }
  using Numbers = std::vector<std::uint64_t>;
};

TEST_F(RunsTest, a_reader_waits_for_its_run_and_takes_no_step_of_the_one_before) {
  finished_run("monday", 0, 3);
  RawClient follower = connect();
  const auto opening = follower.send(MessageType::reader_open, read_run("tuesday"));
  EXPECT_FALSE(follower.is_answered(opening));
  RawClient other = group(write_run("another"));
  write_step(other, 3);
  close(other);
  EXPECT_FALSE(follower.is_answered(opening)) << "a group of another run is none of its business";
  RawClient client = group(write_run("tuesday"));
  EXPECT_EQ(first_step_of(follower.answer(opening)), 4U);
  write_step(client, 4);
  EXPECT_EQ(next_number(follower), 4U);
  EXPECT_EQ(get(follower, 3), ErrorCode::not_found);
  EXPECT_EQ(get(follower, 4), std::nullopt);
  EXPECT_EQ(list(follower), Numbers{4});
  RawClient any = reader(reader_open());
  EXPECT_EQ(next_number(any), 0U) << "without a run nothing changes";
  EXPECT_EQ(list(any), (Numbers{0, 1, 2, 3, 4}));
  close(client);
  expect_end(follower, StreamStatus::ended);
  EXPECT_TRUE(problems().empty());
}

TEST_F(RunsTest, no_start_and_no_seek_leads_out_of_the_run) {
  finished_run("monday", 0, 3);
  finished_run("tuesday", 3, 6);
  finished_run("wednesday", 6, 8);
  for (const auto& [kind, step, first] : {std::tuple{Start::Kind::oldest, 0, 3}, std::tuple{Start::Kind::latest, 0, 5},
                                          std::tuple{Start::Kind::step, 1, 3}, std::tuple{Start::Kind::step, 4, 4},
                                          std::tuple{Start::Kind::cursor, 0, 3}}) {
    wire::ReaderOpenT asked = read_run("tuesday");
    asked.start_kind = static_cast<std::uint8_t>(kind);
    asked.start_step = static_cast<std::uint64_t>(step);
    RawClient follower = reader(asked);
    EXPECT_EQ(next_number(follower), static_cast<std::uint64_t>(first)) << static_cast<int>(kind);
  }
  for (const auto& [kind, step] : {std::pair{Start::Kind::next, 0}, std::pair{Start::Kind::step, 7}}) {
    wire::ReaderOpenT asked = read_run("tuesday");
    asked.start_kind = static_cast<std::uint8_t>(kind);
    asked.start_step = static_cast<std::uint64_t>(step);
    RawClient follower = reader(asked);
    expect_end(follower, StreamStatus::ended);
  }
  wire::ReaderOpenT asked = read_run("tuesday");
  asked.latest_only = true;
  RawClient newest = reader(asked);
  EXPECT_EQ(next_number(newest), 5U);
  wire::CursorMoveT move;
  move.epoch = 1;
  move.seek = true;
  RawClient follower = reader(read_run("tuesday"));
  move.position = 0;
  EXPECT_EQ(follower.call(MessageType::cursor_move, move).type, MessageType::done);
  EXPECT_EQ(next_number(follower), 3U);
  move.position = 7;
  EXPECT_EQ(follower.call(MessageType::cursor_move, move).type, MessageType::done);
  expect_end(follower, StreamStatus::ended);
}

TEST_F(RunsTest, a_restart_with_the_same_run_goes_on_with_it) {
  finished_run("monday", 0, 2);
  RawClient follower = connect();
  wire::WriterOpenT tuesday = write_run("tuesday");
  tuesday.grace_ms = 60'000;  // or the stream may be over before its interruption is told
  {
    RawClient client = group(tuesday);
    first_step_of(follower.call(MessageType::reader_open, read_run("tuesday")));
    write_step(client, 2);
    write_step(client, 3);
    EXPECT_EQ(next_number(follower), 2U);
    EXPECT_EQ(next_number(follower), 3U);
  }
  // Its end is told, and so is its return.
  EXPECT_EQ(wait_step(follower)->kind, static_cast<std::uint8_t>(NextStep::Kind::notice));
  RawClient again = group(tuesday);
  EXPECT_EQ(wait_step(follower)->kind, static_cast<std::uint8_t>(NextStep::Kind::notice));
  write_step(again, 4);
  EXPECT_EQ(next_number(follower), 4U);
  RawClient late = reader(read_run("tuesday"));
  EXPECT_EQ(next_number(late), 2U) << "the run begins with its first group";
}

TEST_F(RunsTest, another_run_ends_the_stream_for_its_readers) {
  RawClient behind = connect();
  RawClient through = connect();
  {
    RawClient client = group(write_run("monday"));
    EXPECT_EQ(first_step_of(behind.call(MessageType::reader_open, read_run("monday"))), 0U);
    EXPECT_EQ(first_step_of(through.call(MessageType::reader_open, read_run("monday", "through"))), 0U);
    for (std::uint64_t step = 0; step < 3; ++step) write_step(client, step);
    for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(next_number(through), step);
    EXPECT_EQ(next_number(behind), 0U);
    close(client);
  }
  RawClient next = group(write_run("tuesday"));
  write_step(next, 3);
  expect_end(through, StreamStatus::ended);
  EXPECT_EQ(next_number(behind), 1U);
  EXPECT_EQ(next_number(behind), 2U);
  expect_end(behind, StreamStatus::ended);
  EXPECT_EQ(list(behind), (Numbers{0, 1, 2}));
  EXPECT_EQ(get(behind, 3), ErrorCode::not_found);
}

TEST_F(RunsTest, a_replaced_run_ends_as_interrupted_for_who_has_not_read_it_all) {
  RawClient behind = connect();
  RawClient through = connect();
  {
    RawClient client = group(write_run("monday"));
    first_step_of(behind.call(MessageType::reader_open, read_run("monday")));
    first_step_of(through.call(MessageType::reader_open, read_run("monday")));
    write_step(client, 0);
    EXPECT_EQ(next_number(through), 0U);
    close(client);
  }
  RawClient next = group(write_run("tuesday", WriteMode::replace));
  write_step(next, 0);
  expect_end(behind, StreamStatus::interrupted);
  expect_end(through, StreamStatus::ended);
  EXPECT_EQ(get(behind, 0), ErrorCode::not_found);
  RawClient late = connect();
  EXPECT_FALSE(late.is_answered(late.send(MessageType::reader_open, read_run("monday")))) << "nothing of it is left";
  RawClient resumed = connect();
  wire::ReaderOpenT asked = read_run("monday");
  asked.resume = true;
  asked.epoch = 1;
  asked.position = 1;
  EXPECT_EQ(resumed.call(MessageType::reader_open, asked).type, MessageType::reader_opened);
  expect_end(resumed, StreamStatus::interrupted);
}

TEST_F(RunsTest, the_reader_of_a_run_that_waits_counts_for_the_rendezvous) {
  finished_run("monday", 0, 1);
  RawClient stranger = reader(read_run("monday"));
  wire::WriterOpenT asked = write_run("tuesday");
  asked.rendezvous_readers = 1;
  RawClient client = connect();
  const auto opening = client.send(MessageType::writer_open, asked);
  EXPECT_FALSE(client.is_answered(opening)) << "a reader of another run takes none of its steps";
  RawClient follower = connect();
  const auto pending = follower.send(MessageType::reader_open, read_run("tuesday"));
  EXPECT_EQ(client.answer(opening).type, MessageType::writer_opened);
  EXPECT_EQ(first_step_of(follower.answer(pending)), 1U);
  // Also before the stream exists.
  RawClient early = connect();
  wire::ReaderOpenT elsewhere = waiting_for_writer("tuesday");
  elsewhere.stream = "elsewhere";
  const auto early_asked = early.send(MessageType::reader_open, elsewhere);
  EXPECT_FALSE(early.is_answered(early_asked));
  asked.stream = "elsewhere";
  RawClient second = connect();
  EXPECT_EQ(second.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  EXPECT_EQ(first_step_of(early.answer(early_asked)), 0U);
}

TEST_F(RunsTest, ranks_of_different_runs_are_refused) {
  wire::WriterOpenT asked = writer_open(0, 2);
  asked.run = "monday";
  RawClient first = connect();
  const auto opening = first.send(MessageType::writer_open, asked);
  asked = writer_open(1, 2);
  asked.run = "tuesday";
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::writer_open, asked)), ErrorCode::invalid_argument);
  EXPECT_EQ(RawClient::failure(first.answer(opening)), ErrorCode::invalid_argument);
}

TEST_F(RunsTest, a_wait_for_a_living_writer_begins_with_its_first_step) {
  finished_run("", 0, 3);
  RawClient follower = connect();
  RawClient of_run = connect();
  const auto opening = follower.send(MessageType::reader_open, waiting_for_writer());
  const auto opening_of_run = of_run.send(MessageType::reader_open, waiting_for_writer("tuesday"));
  EXPECT_FALSE(follower.is_answered(opening));
  std::optional<RawClient> first(group(write_run("")));
  EXPECT_EQ(first_step_of(follower.answer(opening)), 3U);
  EXPECT_FALSE(of_run.is_answered(opening_of_run));
  write_step(*first, 3);
  RawClient late = reader(waiting_for_writer());
  EXPECT_EQ(next_number(late), 3U);
  EXPECT_EQ(get(late, 2), ErrorCode::not_found);
  EXPECT_EQ(list(late), Numbers{3});
  first.reset();
  RawClient after_its_end = connect();
  const auto again = after_its_end.send(MessageType::reader_open, waiting_for_writer());
  EXPECT_FALSE(after_its_end.is_answered(again)) << "that writer has gone";
  RawClient second = group(write_run("tuesday"));
  EXPECT_EQ(first_step_of(after_its_end.answer(again)), 4U);
  EXPECT_EQ(first_step_of(of_run.answer(opening_of_run)), 4U);
}

TEST_F(RunsTest, a_group_that_goes_back_takes_its_readers_along) {
  finished_run("monday", 0, 3);
  std::optional<RawClient> client(group(write_run("tuesday")));
  RawClient follower = reader(waiting_for_writer("tuesday"));
  write_step(*client, 3);
  EXPECT_EQ(next_number(follower), 3U);
  client.reset();
  wire::WriterOpenT asked = write_run("tuesday");
  asked.append_after = 0;
  RawClient again = group(asked);
  write_step(again, 1);
  std::uint64_t number = next_number(follower);
  // Notices come first.
  for (int told = 0; number != 1 && told < 3; ++told) number = next_number(follower);
  EXPECT_EQ(number, 1U);
  EXPECT_EQ(list(follower), Numbers{1});
}

TEST_F(RunsTest, readers_of_different_runs_do_not_share_steps_out) {
  finished_run("monday", 0, 4);
  const auto sharing = [](wire::ReaderOpenT asked) {
    asked.distribution = static_cast<std::uint8_t>(StepDistribution::on_demand);
    return asked;
  };
  RawClient any = reader(sharing(reader_open("worker")));
  RawClient client = group(write_run("tuesday"));
  RawClient one = reader(sharing(read_run("tuesday", "worker")));
  RawClient two = reader(sharing(read_run("tuesday", "worker")));
  for (std::uint64_t step = 4; step < 6; ++step) write_step(client, step);
  EXPECT_EQ(next_number(any), 0U);
  EXPECT_EQ(next_number(one), 4U);
  EXPECT_EQ(next_number(two), 5U);
}

TEST_F(RunsTest, a_reader_whose_run_is_over_holds_no_writer_up) {
  RawClient client = group(write_run("monday"));
  RawClient slow = reader(read_run("monday"));
  for (std::uint64_t step = 0; step < 3; ++step) write_step(client, step);
  wire::StepBeginT begin;
  begin.step = 3;
  begin.lag_limit = 1;
  begin.timeout_ms = 60'000;
  const auto pending = client.send(MessageType::step_begin, begin);
  EXPECT_FALSE(client.is_answered(pending));
  close(client);
  RawClient next = group(write_run("tuesday"));
  EXPECT_EQ(next.call(MessageType::step_begin, begin).type, MessageType::done);
}

TEST_F(RunsTest, the_wait_ends_with_its_timeout_and_says_for_what) {
  finished_run("monday", 0, 1);
  wire::ReaderOpenT asked = read_run("tuesday");
  asked.open_timeout_ms = 1;
  const auto told = RawClient::unpack<wire::Failure>(connect().call(MessageType::reader_open, asked));
  EXPECT_EQ(static_cast<ErrorCode>(told->code), ErrorCode::timeout);
  EXPECT_NE(told->what.find("run \"tuesday\""), std::string::npos) << told->what;
  EXPECT_NE(told->what.find("run \"monday\" and is ended"), std::string::npos) << told->what;
  asked = waiting_for_writer();
  asked.open_timeout_ms = 1;
  const auto none = RawClient::unpack<wire::Failure>(connect().call(MessageType::reader_open, asked));
  EXPECT_EQ(static_cast<ErrorCode>(none->code), ErrorCode::timeout);
  EXPECT_NE(none->what.find("living writer group"), std::string::npos) << none->what;
  asked = read_run(std::string(5000, 'x'));
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::reader_open, asked)), ErrorCode::invalid_argument);
}

TEST_F(RunsTest, a_reader_that_goes_while_it_waits_leaves_nothing_behind) {
  finished_run("monday", 0, 1);
  {
    RawClient gone = connect();
    EXPECT_FALSE(gone.is_answered(gone.send(MessageType::reader_open, read_run("tuesday"))));
  }
  RawClient stays = connect();
  const auto opening = stays.send(MessageType::reader_open, read_run("tuesday"));
  wire::StreamRemoveT remove;
  remove.reservation = "res";
  remove.stream = "flow";
  EXPECT_EQ(connect().call(MessageType::stream_remove, remove).type, MessageType::done);
  EXPECT_FALSE(stays.is_answered(opening)) << "it waits for the next stream of this name";
  RawClient client = group(write_run("tuesday"));
  EXPECT_EQ(first_step_of(stays.answer(opening)), 0U);
  RawClient destroyed = connect();
  const auto in_vain = destroyed.send(MessageType::reader_open, read_run("wednesday"));
  EXPECT_FALSE(destroyed.is_answered(in_vain));
  wire::ReservationDestroyT destroy;
  destroy.name = "res";
  destroy.force = true;
  EXPECT_EQ(connect().call(MessageType::reservation_destroy, destroy).type, MessageType::done);
  EXPECT_EQ(RawClient::failure(destroyed.answer(in_vain)), ErrorCode::not_found);
  expect_alive();
}

}  // namespace
}  // namespace forebay::testing
