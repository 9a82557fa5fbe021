// SPDX-License-Identifier: Apache-2.0
// A disk whose syncs fail or that is full: what was promised is kept, what cannot be kept is said, and nobody waits for
// what will not come.
#include <algorithm>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <vector>

#include "tests/support/faulty_device.h"
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::MessageType;

class FailingDiskTest : public ServerTest {
 protected:
  /// Syncs happen when somebody waits for one.
  FailingDiskTest() { options_.flush_interval_ms = -1; }
  Device& device() override { return disk_; }

  RawClient durable_writer(const std::string& retention = {}, const std::string& stream = "flow") {
    RawClient client = connect();
    wire::WriterOpenT asked = writer_open(0, 1, stream);
    asked.durability = static_cast<std::uint8_t>(Durability::durable);
    asked.retention = retention;
    EXPECT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
    return client;
  }
  /// A failed sync is a problem that stays; space that nobody holds would be another.
  bool space_is_accounted_for() {
    return std::ranges::none_of(problems(), [](const std::string& problem) {
      return problem.find("marked used") != std::string::npos || problem.find("same space") != std::string::npos;
    });
  }

  TemporaryDirectory limbo_;
  FaultyDevice disk_{limbo_.path()};
};

TEST_F(FailingDiskTest, streams_are_synced_side_by_side) {
  std::vector<RawClient> clients;
  std::vector<wire::PartT> parts;
  for (const char* stream : {"flow", "other", "third"}) {
    clients.push_back(durable_writer({}, stream));
    parts.push_back(part_of(clients.back(), 0));
  }
  disk_.set_syncs_held(true);
  std::vector<std::future<MessageType>> answers;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    answers.push_back(
        std::async(std::launch::async, [&, i] { return clients[i].call(MessageType::part, parts[i]).type; }));
  }
  EXPECT_TRUE(disk_.await_held_syncs(clients.size(), std::chrono::seconds(20)));
  disk_.set_syncs_held(false);
  for (auto& answer : answers) EXPECT_EQ(answer.get(), MessageType::committed);
}

TEST_F(FailingDiskTest, syncs_take_turns_by_the_reservations_owner) {
  constexpr uid_t other = 1001;
  constexpr int jobs = 20;
  wire::ReservationCreateT many;
  many.name = "many";
  many.capacity_bytes = 32 * mib;
  many.lifetime = 1;
  many.owner_uid = other;
  EXPECT_EQ(connect().call(MessageType::reservation_create, many).type, MessageType::reservations_answer);
  RawClient theirs = connect();
  wire::WriterOpenT asked = writer_open();
  asked.reservation = many.name;
  asked.durability = static_cast<std::uint8_t>(Durability::durable);
  EXPECT_EQ(theirs.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  const wire::PartT part = part_of(theirs, 0);
  const auto let_go = std::make_shared<std::latch>(1);
  const auto all_begun = std::make_shared<std::latch>(jobs);
  const auto wanted = std::make_shared<const bool>(true);
  in_loop([&](server::Server& server) {
    for (int i = 0; i < jobs; ++i) {
      server.sync_worker().add_for(other, wanted, [let_go, all_begun] {
        all_begun->count_down();
        let_go->wait();
      });
    }
  });
  const std::uint32_t request = theirs.send(MessageType::part, part);
  RawClient own = durable_writer();
  for (std::uint64_t step = 0; step < 10; ++step) write_step(own, step);
  EXPECT_FALSE(theirs.is_answered(request));
  let_go->count_down();
  EXPECT_EQ(theirs.answer(request).type, MessageType::committed);
  all_begun->wait();
}

TEST_F(FailingDiskTest, after_a_failed_sync_no_step_is_waited_for_to_become_durable) {
  RawClient client = durable_writer();
  write_step(client, 0);
  disk_.fail_at(Operation::sync, 1);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::part, part_of(client, 1))), ErrorCode::failed);
  EXPECT_EQ(stream()->status, static_cast<std::uint8_t>(StreamStatus::failed));
  EXPECT_EQ(RawClient::failure(client.call(MessageType::part, part_of(client, 2))), ErrorCode::failed);
  EXPECT_EQ(stream()->durable, 0U);
}

// crash-matrix: making steps durable | the server has no descriptor to open a segment with, once | the sync is tried again: the step becomes durable, the stream goes on
TEST_F(FailingDiskTest, a_sync_that_cannot_begin_waits_and_is_tried_again) {
  RawClient client = durable_writer();
  write_step(client, 0);
  const wire::PartT part = part_of(client, 1);
  disk_.fail_at(Operation::open, 1, ErrorCode::busy);  // as without descriptors or memory
  EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
  EXPECT_EQ(stream()->status, static_cast<std::uint8_t>(StreamStatus::live));
  EXPECT_EQ(stream()->durable, 1U);
  // What a sync itself has answered stays final, whatever it says.
  disk_.fail_at(Operation::sync, 1, ErrorCode::busy);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::part, part_of(client, 2))), ErrorCode::failed);
}

TEST_F(FailingDiskTest, a_failed_sync_counts_although_the_journal_has_no_room_to_say_so) {
  RawClient client = writer();
  write_step(client, 0);
  disk_.set_full(true);
  RawClient consumer = reader(reader_open("render"));
  wire::CursorMoveT move;
  move.epoch = 1;
  move.seek = true;
  while (consumer.call(MessageType::cursor_move, move).type == MessageType::done) {
  }
  disk_.fail_at(Operation::sync, 1);
  wire::ReaderOpenT asked = reader_open();
  asked.min_watermark = static_cast<std::uint8_t>(Watermark::durable);
  RawClient follower = reader(asked);
  EXPECT_EQ(wait_step(follower)->status, static_cast<std::uint8_t>(StreamStatus::failed));
  EXPECT_EQ(stream()->status, static_cast<std::uint8_t>(StreamStatus::failed));
  EXPECT_FALSE(stream()->durable.has_value());
  disk_.set_full(false);
}

TEST_F(FailingDiskTest, space_of_dropped_steps_comes_back_with_the_stream_although_its_sync_failed) {
  RawClient client = durable_writer("last:1");
  write_step(client, 0);
  disk_.fail_at(Operation::sync, 1);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::part, part_of(client, 1))), ErrorCode::failed);
  wire::StreamRemoveT remove;
  remove.reservation = "res";
  remove.stream = "flow";
  remove.force = true;
  EXPECT_EQ(connect().call(MessageType::stream_remove, remove).type, MessageType::done);
  EXPECT_TRUE(space_is_accounted_for());
}

TEST_F(FailingDiskTest, nobody_waits_for_a_failed_stream_to_drop_steps) {
  RawClient client = connect();
  wire::WriterOpenT asked = writer_open();
  asked.when_full = static_cast<std::uint8_t>(WhenFull::drop_oldest);
  asked.block_timeout_ms = -1;
  ASSERT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  for (std::uint64_t step = 0; step < 9; ++step) write_step(client, step, 6 * mib);
  disk_.fail_at(Operation::sync, 1);
  wire::ReaderOpenT durable = reader_open();
  durable.min_watermark = static_cast<std::uint8_t>(Watermark::durable);
  RawClient follower = reader(durable);
  EXPECT_EQ(wait_step(follower)->status, static_cast<std::uint8_t>(StreamStatus::failed));
  wire::SpaceRequestT request;
  request.step = 9;
  request.bytes = 30 * mib;
  EXPECT_EQ(RawClient::failure(client.call(MessageType::space_request, request)), ErrorCode::failed);
}

TEST_F(FailingDiskTest, space_that_cannot_be_written_down_is_not_called_full) {
  RawClient client = writer();
  write_step(client, 0);
  wire::SpaceRequestT request;
  request.step = 1;
  request.bytes = 30 * mib;
  disk_.fail_at(Operation::write, 1);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::space_request, request)), ErrorCode::failed);
  EXPECT_EQ(stream()->status, static_cast<std::uint8_t>(StreamStatus::failed));
}

TEST_F(FailingDiskTest, a_drop_that_cannot_be_written_down_is_not_tried_for_ever) {
  RawClient client = connect();
  wire::WriterOpenT asked = writer_open();
  asked.when_full = static_cast<std::uint8_t>(WhenFull::drop_oldest);
  asked.block_timeout_ms = 100;
  ASSERT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  for (std::uint64_t step = 0; step < 9; ++step) write_step(client, step, 6 * mib);
  disk_.set_full(true);
  wire::ReaderOpenT newest = reader_open("render");
  newest.start_kind = static_cast<std::uint8_t>(Start::Kind::next);
  RawClient consumer = reader(newest);
  wire::CursorMoveT move;
  move.epoch = 1;
  move.seek = true;
  move.position = 9;
  while (consumer.call(MessageType::cursor_move, move).type == MessageType::done) {
  }
  wire::SpaceRequestT request;
  request.step = 9;
  request.bytes = 30 * mib;
  EXPECT_EQ(RawClient::failure(client.call(MessageType::space_request, request)), ErrorCode::no_space);
  disk_.set_full(false);
  EXPECT_TRUE(problems().empty());
}

TEST_F(FailingDiskTest, a_full_disk_refuses_steps_and_leaves_room_for_the_end) {
  RawClient client = durable_writer();
  RawClient follower = reader(reader_open());
  disk_.set_full(true);
  std::uint64_t step = 0;
  std::optional<ErrorCode> refused;
  while (!refused) refused = RawClient::failure(client.call(MessageType::part, part_of(client, step++)));
  EXPECT_EQ(refused, ErrorCode::no_space);
  wire::RetentionSetT smaller;
  smaller.reservation = "res";
  smaller.stream = "flow";
  smaller.retention = "all";
  while (connect().call(MessageType::retention_set, smaller).type == MessageType::done) {
  }
  EXPECT_EQ(client.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  auto event = wait_step(follower);
  while (event->kind != static_cast<std::uint8_t>(NextStep::Kind::end_of_stream)) event = wait_step(follower);
  EXPECT_EQ(event->status, static_cast<std::uint8_t>(StreamStatus::ended));
  disk_.set_full(false);
}

TEST_F(FailingDiskTest, a_failed_sync_counts_for_all_streams_in_the_segment) {
  RawClient client = writer();
  {
    RawClient first = writer("first");
    write_step(first, 0);
    disk_.set_syncs_held(true);
    EXPECT_EQ(first.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  }
  // All other segments; then there is room only where the first stream's step lies, whose sync is under way.
  write_step(client, 0, 60 * mib);
  write_step(client, 1);
  disk_.fail_at(Operation::sync, 1);
  disk_.set_syncs_held(false);
  wire::ReaderOpenT asked = reader_open();
  asked.min_watermark = static_cast<std::uint8_t>(Watermark::durable);
  RawClient follower = reader(asked);
  EXPECT_EQ(wait_step(follower)->status, static_cast<std::uint8_t>(StreamStatus::failed));
  EXPECT_EQ(stream()->status, static_cast<std::uint8_t>(StreamStatus::failed));
  EXPECT_FALSE(stream()->durable.has_value());
  wire::SpaceRequestT request;
  request.step = 2;
  request.bytes = 8192;
  EXPECT_EQ(RawClient::failure(client.call(MessageType::space_request, request)), ErrorCode::failed);
  EXPECT_TRUE(space_is_accounted_for());
}

// crash-matrix: making steps durable | the sync of a step that was committed while the one before it was synced fails | the step before stays durable; this one is never called so, and the stream says failed
TEST_F(FailingDiskTest, a_step_that_is_committed_during_a_sync_is_not_durable_with_it) {
  RawClient client = writer();
  write_step(client, 0);
  disk_.set_syncs_held(true);
  wire::ReaderOpenT asked = reader_open();
  asked.min_watermark = static_cast<std::uint8_t>(Watermark::durable);
  RawClient follower = reader(asked);
  const std::uint32_t waits = follower.send(MessageType::step_wait, wire::StepWaitT());
  disk_.await_held_sync();
  write_step(client, 1);
  // Behind that of the segment and the journal's comes the second step's own.
  disk_.fail_at(Operation::sync, 3);
  disk_.set_syncs_held(false);
  const auto first = RawClient::unpack<wire::StepEvent>(follower.answer(waits));
  ASSERT_EQ(first->kind, static_cast<std::uint8_t>(NextStep::Kind::step));
  EXPECT_EQ(first->step->summary->step(), 0U);
  EXPECT_EQ(wait_step(follower)->status, static_cast<std::uint8_t>(StreamStatus::failed));
  EXPECT_EQ(stream()->durable, 0U);
}

class FullJournalTest : public FailingDiskTest {
 protected:
  /// Nothing can be added to the stream's journal any more, not even its group's end.
  void fill_journal() {
    disk_.set_full(true);
    RawClient consumer = reader(reader_open("render"));
    wire::CursorMoveT move;
    move.epoch = 1;
    move.seek = true;
    while (consumer.call(MessageType::cursor_move, move).type == MessageType::done) {
    }
  }
  static std::unique_ptr<wire::StepEventT> wait_end(RawClient& follower) {
    auto event = wait_step(follower);
    while (event->kind == static_cast<std::uint8_t>(NextStep::Kind::step)) event = wait_step(follower);
    return event;
  }
  void TearDown() override {
    disk_.set_full(false);
    FailingDiskTest::TearDown();
  }
};

TEST_F(FullJournalTest, followers_learn_of_an_end_that_cannot_be_written_down) {
  RawClient client = writer();
  write_step(client, 0);
  RawClient follower = reader(reader_open());
  fill_journal();
  EXPECT_EQ(RawClient::failure(client.call(MessageType::writer_close, wire::WriterCloseT())), ErrorCode::no_space);
  const auto event = wait_end(follower);
  EXPECT_EQ(event->kind, static_cast<std::uint8_t>(NextStep::Kind::end_of_stream));
  EXPECT_EQ(event->status, static_cast<std::uint8_t>(StreamStatus::ended));
}

TEST_F(FullJournalTest, followers_learn_that_the_group_is_lost) {
  RawClient follower = connect();
  {
    RawClient client = writer();
    write_step(client, 0);
    follower = reader(reader_open());
    fill_journal();
  }
  EXPECT_EQ(wait_end(follower)->status, static_cast<std::uint8_t>(StreamStatus::interrupted));
}

}  // namespace
}  // namespace forebay::testing
