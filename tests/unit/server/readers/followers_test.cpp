// SPDX-License-Identifier: Apache-2.0
// Readers through the raw protocol: pins, retention, cursors, and how steps are shared out.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::Message;
using protocol::MessageType;

class FollowersTest : public ServerTest {
 protected:
  /// A writer whose stream keeps what `retention` says.
  RawClient keeping(const std::string& retention, WhenFull when_full = WhenFull::block) {
    RawClient client = connect();
    wire::WriterOpenT asked = writer_open();
    asked.retention = retention;
    asked.when_full = static_cast<std::uint8_t>(when_full);
    EXPECT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
    return client;
  }
  static void release(RawClient& client, const wire::StepEventT& event) {
    wire::StepReleaseT release;
    release.steps.emplace_back(event.step->summary->step(), event.step->summary->epoch(), 0);
    (void)client.send(MessageType::step_release, release);
  }
  static Message acknowledge(RawClient& client, std::uint64_t step, std::uint32_t epoch = 1) {
    wire::CursorMoveT move;
    move.epoch = epoch;
    move.position = step + 1;
    return client.call(MessageType::cursor_move, move);
  }
  /// The reader's number, by which a part names it.
  static std::uint64_t session_of(RawClient& client, const wire::ReaderOpenT& asked) {
    return RawClient::unpack<wire::ReaderOpened>(client.call(MessageType::reader_open, asked))->session;
  }
  /// A connection of another process, which the kernel remembers as the one that made it.
  RawClient connect_as_another_process() {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path_.copy(address.sun_path, sizeof address.sun_path - 1);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address));
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return RawClient(socket_path_, std::move(socket));
  }
  static std::uint64_t number_of(const wire::StepEventT& event) {
    return event.step ? event.step->summary->step() : ~std::uint64_t{0};
  }
};

TEST_F(FollowersTest, a_pinned_step_outlasts_retention_until_it_is_released) {
  RawClient client = keeping("last:1");
  write_step(client, 0);
  RawClient follower = reader(reader_open());
  const auto event = wait_step(follower);
  EXPECT_TRUE(event->step->pinned);
  write_step(client, 1);
  write_step(client, 2);
  EXPECT_EQ(stream()->oldest, 0U);
  EXPECT_EQ(stream()->steps, 2U) << "step 1 is neither new nor pinned";
  release(follower, *event);
  EXPECT_EQ(number_of(*wait_step(follower)), 2U);
  EXPECT_EQ(stream()->oldest, 2U);
  EXPECT_TRUE(problems().empty());
}

TEST_F(FollowersTest, a_part_is_held_by_a_named_reader_of_its_own_process_and_by_nobody_else) {
  RawClient client = keeping("last:1");
  RawClient elsewhere_writer = writer("elsewhere");
  RawClient own = connect();
  RawClient unnamed = connect();
  RawClient elsewhere = connect();
  RawClient foreign = connect_as_another_process();
  const std::uint64_t session = session_of(own, reader_open("render"));
  wire::PartT part = part_of(client, 0);
  for (const std::uint64_t nobody :
       {session + 1, session_of(unnamed, reader_open()), session_of(elsewhere, reader_open("render", "elsewhere")),
        session_of(foreign, reader_open("foreign"))}) {
    part.holder = nobody;
    EXPECT_EQ(RawClient::failure(client.call(MessageType::part, part)), ErrorCode::protocol);
    EXPECT_EQ(stream()->steps, 0U);
  }
  // What was refused has taken nothing: the part can be sent again.
  part.holder = session;
  EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
  for (std::uint64_t step = 1; step < 4; ++step) write_step(client, step);
  EXPECT_EQ(stream()->oldest, 0U) << "held, though the reader was never given it";
  wire::StepReleaseT release;
  release.steps.emplace_back(0, 1, 0);
  (void)own.send(MessageType::step_release, release);
  (void)own.call(MessageType::step_poll, wire::StepPollT());
  EXPECT_EQ(stream()->oldest, 3U);
  EXPECT_TRUE(problems().empty());
}

TEST_F(FollowersTest, a_reader_that_goes_lets_go_of_its_pins) {
  RawClient client = keeping("last:1");
  write_step(client, 0);
  {
    RawClient follower = reader(reader_open());
    EXPECT_TRUE(wait_step(follower)->step->pinned);
    (void)follower.send(MessageType::step_wait, wire::StepWaitT());
  }
  write_step(client, 1);
  write_step(client, 2);
  EXPECT_EQ(stream()->oldest, 2U);
  EXPECT_TRUE(problems().empty());
}

TEST_F(FollowersTest, readers_that_wait_get_the_step_even_if_the_next_one_drops_it) {
  // All but one of them are told a moment after the writer, who may have written again by then.
  RawClient client = keeping("last:1");
  write_step(client, 0);
  std::vector<RawClient> followers;
  for (int i = 0; i < 4; ++i) followers.push_back(reader(reader_open()));
  for (std::uint64_t step = 0; step < 100; step += 2) {
    std::vector<std::uint32_t> waits;
    for (RawClient& follower : followers) {
      const auto event = wait_step(follower);
      EXPECT_EQ(number_of(*event), step);
      release(follower, *event);
      waits.push_back(follower.send(MessageType::step_wait, wire::StepWaitT()));
      // Answered in order, so the wait has arrived.
      EXPECT_EQ(follower.call(MessageType::segments_get, wire::SegmentsGetT()).type, MessageType::segments_answer);
    }
    // Space for both is asked for at once, so that the second part can follow the first without a wait.
    wire::PartT first = part_of(client, step + 1, 16384);
    wire::PartT second = first;
    std::vector<wire::Extent> halves;
    for (const wire::Extent& extent : first.extents) {
      for (std::uint64_t offset = 0; offset < extent.length(); offset += 8192)
        halves.emplace_back(extent.segment(), 0, 0, extent.offset() + offset, 8192);
    }
    ASSERT_EQ(halves.size(), 2U);
    first.extents = {halves[0]};
    second.step = step + 2;
    second.extents = {halves[1]};
    second.metadata = {{halves[1].segment(), 0, 0, halves[1].offset(), 64}};
    first.next_bytes = 8192;
    (void)client.send(MessageType::part, first);
    EXPECT_EQ(client.call(MessageType::part, second).type, MessageType::committed);
    for (std::size_t i = 0; i < followers.size(); ++i) {
      const auto event = RawClient::unpack<wire::StepEvent>(followers[i].answer(waits[i]));
      EXPECT_EQ(number_of(*event), step + 1);
      release(followers[i], *event);
    }
  }
}

TEST_F(FollowersTest, releases_that_nobody_owes_change_nothing) {
  RawClient client = keeping("last:1");
  write_step(client, 0);
  RawClient first = reader(reader_open());
  RawClient second = reader(reader_open());
  const auto event = wait_step(first);
  for (int i = 0; i < 3; ++i) release(second, *event);
  wire::StepReleaseT release;
  release.steps.emplace_back(77, 99, 0);
  (void)second.send(MessageType::step_release, release);
  EXPECT_EQ(number_of(*wait_step(second)), 0U);
  write_step(client, 1);
  write_step(client, 2);
  EXPECT_EQ(stream()->oldest, 0U) << "the first reader's pin is gone";
}

TEST_F(FollowersTest, unnamed_readers_pin_at_most_a_quarter) {
  RawClient client = keeping("all");
  std::vector<std::unique_ptr<wire::StepEventT>> held;
  RawClient follower = reader(reader_open());
  std::uint64_t pinned_bytes = 0;
  for (std::uint64_t step = 0; step < 6; ++step) {
    write_step(client, step, 6 * mib);
    held.push_back(wait_step(follower));
    if (held.back()->step->pinned) pinned_bytes += held.back()->step->summary->size_bytes();
  }
  EXPECT_LE(pinned_bytes, 16 * mib);
  EXPECT_GE(pinned_bytes, 12 * mib);
  EXPECT_FALSE(held.back()->step->pinned);
}

TEST_F(FollowersTest, a_consumer_has_one_holder_and_goes_on_at_its_cursor) {
  RawClient client = keeping("all");
  for (std::uint64_t step = 0; step < 4; ++step) write_step(client, step);
  {
    RawClient holder = reader(reader_open("render"));
    const Message busy = connect().call(MessageType::reader_open, reader_open("render"));
    EXPECT_EQ(RawClient::failure(busy), ErrorCode::busy);
    EXPECT_NE(protocol::failure_of(busy).what.find(std::to_string(::getpid())), std::string::npos);
    EXPECT_EQ(number_of(*wait_step(holder)), 0U);
    EXPECT_EQ(number_of(*wait_step(holder)), 1U);
    EXPECT_EQ(acknowledge(holder, 0).type, MessageType::done);
  }
  // The server learns of the end of the connection before it answers a request that came after it.
  RawClient next = connect();
  EXPECT_EQ(next.call(MessageType::reader_open, reader_open("render")).type, MessageType::reader_opened);
  EXPECT_EQ(number_of(*wait_step(next)), 1U);
}

TEST_F(FollowersTest, retention_waits_for_named_consumers) {
  RawClient client = keeping("consumers:render");
  for (std::uint64_t step = 0; step < 3; ++step) write_step(client, step);
  EXPECT_EQ(stream()->steps, 3U) << "a consumer that has never been there has passed nothing";
  RawClient follower = reader(reader_open("render"));
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto event = wait_step(follower);
    EXPECT_EQ(number_of(*event), step);
    EXPECT_EQ(acknowledge(follower, step).type, MessageType::done);
    EXPECT_EQ(stream()->steps, 3 - step) << "it is still pinned";
    release(follower, *event);
    EXPECT_EQ(acknowledge(follower, step).type, MessageType::done);
    EXPECT_EQ(stream()->steps, 2 - step);
  }
  EXPECT_TRUE(problems().empty());
}

TEST_F(FollowersTest, cursors_cannot_be_moved_into_nonsense) {
  RawClient client = keeping("consumers:render");
  write_step(client, 0);
  RawClient unnamed = reader(reader_open());
  EXPECT_EQ(RawClient::failure(acknowledge(unnamed, 0)), ErrorCode::invalid_argument);
  RawClient follower = reader(reader_open("render"));
  EXPECT_EQ(acknowledge(follower, 1'000'000).type, MessageType::done) << "a step that is not there";
  EXPECT_EQ(acknowledge(follower, ~std::uint64_t{0}).type, MessageType::done)
      << "a step whose follower's number overflows";
  EXPECT_EQ(stream()->consumers.front()->position, 0U);
  wire::CursorMoveT seek;
  seek.epoch = 1;
  seek.position = ~std::uint64_t{0};
  seek.seek = true;
  EXPECT_EQ(RawClient::failure(follower.call(MessageType::cursor_move, seek)), ErrorCode::invalid_argument);
  seek.position = 2;
  EXPECT_EQ(RawClient::failure(follower.call(MessageType::cursor_move, seek)), ErrorCode::invalid_argument);
  seek.position = 0;
  EXPECT_EQ(follower.call(MessageType::cursor_move, seek).type, MessageType::done);
  EXPECT_EQ(number_of(*wait_step(follower)), 0U);
  RawClient liar = reader(reader_open("other"));
  EXPECT_EQ(RawClient::failure(acknowledge(liar, 0, 99)), ErrorCode::protocol);
  EXPECT_TRUE(liar.ended());
  expect_alive();
}

TEST_F(FollowersTest, a_seek_ends_a_wait_from_before_it) {
  RawClient client = keeping("all");
  write_step(client, 0);
  RawClient follower = reader(reader_open());
  EXPECT_EQ(number_of(*wait_step(follower)), 0U);
  const std::uint32_t before = follower.send(MessageType::step_wait, wire::StepWaitT());
  wire::CursorMoveT seek;
  seek.epoch = 1;
  seek.position = 0;
  seek.seek = true;
  EXPECT_EQ(follower.call(MessageType::cursor_move, seek).type, MessageType::done);
  EXPECT_EQ(number_of(*wait_step(follower)), 0U);
  write_step(client, 1);
  EXPECT_EQ(number_of(*wait_step(follower)), 1U);
  EXPECT_FALSE(follower.is_answered(before));
}

TEST_F(FollowersTest, on_demand_and_round_robin_give_each_step_to_one_reader) {
  for (const StepDistribution distribution : {StepDistribution::on_demand, StepDistribution::round_robin}) {
    const std::string name = distribution == StepDistribution::on_demand ? "demand" : "robin";
    RawClient client = writer(name);
    wire::ReaderOpenT asked = reader_open("workers", name);
    asked.distribution = static_cast<std::uint8_t>(distribution);
    RawClient first = reader(asked);
    RawClient second = reader(asked);
    for (std::uint64_t step = 0; step < 8; ++step) write_step(client, step);
    std::vector<std::uint64_t> seen;
    for (int i = 0; i < 4; ++i) {
      seen.push_back(number_of(*wait_step(first)));
      seen.push_back(number_of(*wait_step(second)));
    }
    std::ranges::sort(seen);
    EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7})) << name;
  }
}

TEST_F(FollowersTest, steps_dealt_to_a_reader_that_goes_are_dealt_again) {
  RawClient client = writer();
  wire::ReaderOpenT asked = reader_open("workers");
  asked.distribution = static_cast<std::uint8_t>(StepDistribution::round_robin);
  RawClient stays = reader(asked);
  std::vector<std::uint64_t> seen;
  {
    RawClient goes = reader(asked);
    for (std::uint64_t step = 0; step < 4; ++step) write_step(client, step);
    seen.push_back(number_of(*wait_step(stays)));
    seen.push_back(number_of(*wait_step(goes)));
  }
  while (seen.size() < 4) seen.push_back(number_of(*wait_step(stays)));
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

TEST_F(FollowersTest, what_the_others_got_is_not_dealt_again_when_a_reader_goes) {
  RawClient client = writer();
  wire::ReaderOpenT asked = reader_open("workers");
  asked.distribution = static_cast<std::uint8_t>(StepDistribution::round_robin);
  RawClient stays = reader(asked);
  std::vector<std::uint64_t> seen;
  {
    RawClient goes = reader(asked);
    for (std::uint64_t step = 0; step < 6; ++step) write_step(client, step);
    for (int i = 0; i < 3; ++i) seen.push_back(number_of(*wait_step(stays)));
  }
  while (seen.size() < 6) seen.push_back(number_of(*wait_step(stays)));
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(FollowersTest, readers_that_share_come_back_to_their_cursor_when_all_have_gone) {
  RawClient client = writer();
  wire::ReaderOpenT asked = reader_open("workers");
  asked.distribution = static_cast<std::uint8_t>(StepDistribution::on_demand);
  for (std::uint64_t step = 0; step < 3; ++step) write_step(client, step);
  {
    RawClient crashes = reader(asked);
    for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(number_of(*wait_step(crashes)), step);
    EXPECT_EQ(acknowledge(crashes, 0).type, MessageType::done);
  }
  expect_alive();  // by now the server knows that it has gone
  RawClient comes_back = reader(asked);
  EXPECT_EQ(number_of(*wait_step(comes_back)), 1U);
}

TEST_F(FollowersTest, a_writer_that_shares_steps_out_does_not_send_its_readers_back) {
  {
    RawClient client = writer();
    for (std::uint64_t step = 0; step < 3; ++step) write_step(client, step);
    EXPECT_EQ(client.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  }
  wire::ReaderOpenT from_now_on = reader_open();
  from_now_on.start_kind = static_cast<std::uint8_t>(Start::Kind::next);
  RawClient follower = reader(from_now_on);
  RawClient client = connect();
  wire::WriterOpenT asked = writer_open();
  asked.distribution = static_cast<std::uint8_t>(StepDistribution::on_demand);
  ASSERT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  write_step(client, 3);
  auto event = wait_step(follower);
  while (event->kind == static_cast<std::uint8_t>(NextStep::Kind::notice)) event = wait_step(follower);
  EXPECT_EQ(number_of(*event), 3U);
}

TEST_F(FollowersTest, dropping_the_oldest_drops_no_more_than_is_needed) {
  RawClient client = keeping("all", WhenFull::drop_oldest);
  std::uint64_t step = 0;
  for (; step < 9; ++step) write_step(client, step, 6 * mib);
  // Durable steps come free only with a sync of the journal; what is dropped meanwhile must not be everything.
  RawClient follower = connect();
  wire::ReaderOpenT asked = reader_open();
  asked.min_watermark = 2;
  asked.start_kind = static_cast<std::uint8_t>(Start::Kind::latest);
  ASSERT_EQ(follower.call(MessageType::reader_open, asked).type, MessageType::reader_opened);
  const auto event = wait_step(follower);
  EXPECT_EQ(number_of(*event), 8U);
  release(follower, *event);
  for (; step < 12; ++step) write_step(client, step, 6 * mib);
  EXPECT_GE(stream()->steps, 8U);
  EXPECT_EQ(stream()->committed, 11U);
  EXPECT_TRUE(problems().empty());
}

TEST_F(FollowersTest, dropping_the_oldest_spares_precious_steps_and_those_a_consumer_needs) {
  RawClient client = keeping("all,precious:2", WhenFull::drop_oldest);
  for (std::uint64_t step = 0; step < 10; ++step) write_step(client, step, 6 * mib);
  const auto kept = [this] {
    wire::StepsQueryT query;
    query.reservation = "res";
    query.stream = "flow";
    query.steps_max = 100;
    const auto steps = RawClient::unpack<wire::StepsAnswer>(connect().call(MessageType::steps_query, query));
    std::vector<std::uint64_t> numbers;
    for (const wire::StepSummary& summary : steps->steps) numbers.push_back(summary.step());
    return numbers;
  };
  const std::vector<std::uint64_t> ten{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(kept(), ten);
  write_step(client, 10, 6 * mib);
  EXPECT_EQ(kept(), (std::vector<std::uint64_t>{0, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  wire::ReaderOpenT asked = reader_open("render");
  asked.start_kind = static_cast<std::uint8_t>(Start::Kind::step);
  asked.start_step = 5;
  RawClient consumer = reader(asked);
  write_step(client, 11, 6 * mib);
  EXPECT_EQ(kept(), (std::vector<std::uint64_t>{0, 2, 4, 5, 6, 7, 8, 9, 10, 11}));
  // All that is left is precious, or the consumer has not had it yet.
  wire::SpaceRequestT request;
  request.step = 12;
  request.bytes = 6 * mib;
  const auto pending = client.send(MessageType::space_request, request);
  EXPECT_FALSE(client.is_answered(pending));
  EXPECT_EQ(kept().size(), 10U);
  wire::CursorMoveT move;
  move.epoch = 1;
  move.position = 6;
  EXPECT_EQ(consumer.call(MessageType::cursor_move, move).type, MessageType::done);
  EXPECT_EQ(client.answer(pending).type, MessageType::space_granted);
  EXPECT_EQ(kept(), (std::vector<std::uint64_t>{0, 2, 4, 6, 7, 8, 9, 10, 11}));
}

TEST_F(FollowersTest, a_living_readers_number_is_its_own) {
  RawClient client = writer();
  wire::ReaderOpenT asked = reader_open();
  RawClient first = connect();
  const auto opened = RawClient::unpack<wire::ReaderOpened>(first.call(MessageType::reader_open, asked));
  asked.resume = true;
  asked.epoch = opened->epoch;
  asked.session = opened->session;
  RawClient second = connect();
  EXPECT_NE(RawClient::unpack<wire::ReaderOpened>(second.call(MessageType::reader_open, asked))->session,
            opened->session);
  asked.session = opened->session + 1;
  RawClient third = connect();
  EXPECT_EQ(RawClient::unpack<wire::ReaderOpened>(third.call(MessageType::reader_open, asked))->session,
            opened->session + 1);
}

TEST_F(FollowersTest, a_reader_waits_for_a_stream_and_leaves_while_it_waits) {
  {
    RawClient gone = connect();
    (void)gone.send(MessageType::reader_open, reader_open({}, "later"));
  }
  RawClient waiting = connect();
  const auto pending = waiting.send(MessageType::reader_open, reader_open({}, "later"));
  EXPECT_FALSE(waiting.is_answered(pending));
  RawClient client = writer("later");
  EXPECT_EQ(waiting.answer(pending).type, MessageType::reader_opened);
  wire::ReaderOpenT asked = reader_open({}, "never");
  asked.open_timeout_ms = 1;
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::reader_open, asked)), ErrorCode::timeout);
}

TEST_F(FollowersTest, a_reader_that_waits_for_a_stream_learns_that_its_reservation_is_gone) {
  create("brief", 8 * mib);
  wire::ReaderOpenT asked = reader_open({}, "later");
  asked.reservation = "brief";
  RawClient waiting = connect();
  const auto pending = waiting.send(MessageType::reader_open, asked);
  EXPECT_FALSE(waiting.is_answered(pending));
  wire::ReservationDestroyT destroy;
  destroy.name = "brief";
  EXPECT_EQ(connect().call(MessageType::reservation_destroy, destroy).type, MessageType::done);
  EXPECT_EQ(RawClient::failure(waiting.answer(pending)), ErrorCode::not_found);
}

TEST_F(FollowersTest, withdrawn_steps_stay_for_those_who_hold_them) {
  RawClient follower = connect();
  std::unique_ptr<wire::StepEventT> event;
  {
    RawClient client = writer();
    for (std::uint64_t step = 0; step < 3; ++step) write_step(client, step);
    follower = reader(reader_open());
    for (int i = 0; i < 3; ++i) event = wait_step(follower);
    EXPECT_EQ(client.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  }
  wire::WriterOpenT asked = writer_open();
  asked.append_after = 0;
  RawClient again = connect();
  ASSERT_EQ(again.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  write_step(again, 1);
  // A step asked for by its number does not take the word from the next one in turn.
  wire::StepGetT get;
  get.step = 0;
  EXPECT_EQ(follower.call(MessageType::step_get, get).type, MessageType::step_event);
  auto next = wait_step(follower);
  while (next->kind == static_cast<std::uint8_t>(NextStep::Kind::notice)) next = wait_step(follower);
  EXPECT_EQ(number_of(*next), 1U);
  EXPECT_EQ(next->step->summary->epoch(), 2U);
  EXPECT_TRUE(next->rewound);
  EXPECT_TRUE(problems().empty());
  wire::StepCheckT check;
  check.key = std::make_unique<wire::StepKey>(2, 1, 0);
  EXPECT_EQ(follower.call(MessageType::step_check, check).type, MessageType::done) << "it holds the step";
  RawClient other = reader(reader_open());
  EXPECT_EQ(RawClient::failure(other.call(MessageType::step_check, check)), ErrorCode::step_gone);
  release(follower, *event);
  EXPECT_TRUE(problems().empty());
}

}  // namespace
}  // namespace forebay::testing
