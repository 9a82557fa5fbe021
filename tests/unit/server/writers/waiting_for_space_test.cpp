// SPDX-License-Identifier: Apache-2.0
// The queue for space when those who stand in it die: nobody waits for the dead, and they are given nothing.
#include <memory>

#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::MessageType;

/// Of 62 MiB one stream fills 50, 10 of them only because a reader holds the oldest step.
class WaitingForSpace : public ServerTest {
 protected:
  struct Waiting {
    std::unique_ptr<RawClient> client;
    std::uint32_t request = 0;

    bool is_answered() const { return client->is_answered(request); }
    protocol::Message answer() const { return client->answer(request); }
    /// As a process does that is killed.
    void die() { client.reset(); }
  };

  void SetUp() override {
    ServerTest::SetUp();
    RawClient full = connect();
    wire::WriterOpenT asked = writer_open();
    asked.retention = "last:4";
    ASSERT_EQ(full.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
    write_step(full, 0, 10 * mib);
    holder_ = std::make_unique<RawClient>(reader(reader_open()));
    held_ = wait_step(*holder_);
    ASSERT_TRUE(held_->step->pinned);
    for (std::uint64_t step = 1; step < 5; ++step) write_step(full, step, 10 * mib);
    ASSERT_EQ(full.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  }
  void let_go_of_the_oldest() {
    wire::StepReleaseT release;
    release.steps.emplace_back(held_->step->summary->step(), held_->step->summary->epoch(), 0);
    (void)holder_->send(MessageType::step_release, release);
  }

  /// Asks for space of the first step, which there is not.
  static Waiting begin_waiting(std::unique_ptr<RawClient> client, std::uint64_t bytes) {
    wire::SpaceRequestT request;
    request.bytes = bytes;
    Waiting waiting{std::move(client), 0};
    waiting.request = waiting.client->send(MessageType::space_request, request);
    EXPECT_FALSE(waiting.is_answered());
    return waiting;
  }
  std::unique_ptr<RawClient> open(const std::string& stream) { return std::make_unique<RawClient>(writer(stream)); }

 private:
  std::unique_ptr<RawClient> holder_;
  std::unique_ptr<wire::StepEventT> held_;
};

// crash-matrix: waiting for space | the writer that is first in the queue, killed; it waits for more than is free | the next one gets what is free at once
TEST_F(WaitingForSpace, goes_on_when_the_first_one_dies) {
  Waiting first = begin_waiting(open("first"), 16 * mib);
  const Waiting second = begin_waiting(open("second"), 4 * mib);
  first.die();
  EXPECT_EQ(second.answer().type, MessageType::space_granted);
  EXPECT_TRUE(problems().empty());
}

// crash-matrix: waiting for space | the writer that is first in the queue, killed, with a part of its step's space in its hands | the next one gets that, too
TEST_F(WaitingForSpace, has_what_the_dead_one_held) {
  auto client = open("first");
  part_of(*client, 0, 4 * mib);
  Waiting first = begin_waiting(std::move(client), 16 * mib);
  const Waiting second = begin_waiting(open("second"), 10 * mib);
  first.die();
  EXPECT_EQ(second.answer().type, MessageType::space_granted);
  EXPECT_TRUE(problems().empty());
}

// crash-matrix: waiting for space | one of two ranks that wait for their step's space, killed | the other is told group_broken at once; the writer behind them gets what is free
TEST_F(WaitingForSpace, loses_all_ranks_of_a_group_together) {
  auto left = std::make_unique<RawClient>(connect());
  auto right = std::make_unique<RawClient>(connect());
  const auto opening = left->send(MessageType::writer_open, writer_open(0, 2, "first"));
  ASSERT_EQ(right->call(MessageType::writer_open, writer_open(1, 2, "first")).type, MessageType::writer_opened);
  ASSERT_EQ(left->answer(opening).type, MessageType::writer_opened);
  const Waiting first = begin_waiting(std::move(left), 16 * mib);
  Waiting with_it = begin_waiting(std::move(right), 16 * mib);
  const Waiting second = begin_waiting(open("second"), 4 * mib);
  with_it.die();
  EXPECT_EQ(RawClient::failure(first.answer()), ErrorCode::group_broken);
  EXPECT_EQ(second.answer().type, MessageType::space_granted);
  EXPECT_TRUE(problems().empty());
}

// crash-matrix: waiting for space | a writer in the middle of the queue, killed | those before and behind it wait on, and get their space when there is some; nothing stays taken for the dead one
TEST_F(WaitingForSpace, keeps_its_order_when_one_in_its_midst_dies) {
  const Waiting first = begin_waiting(open("first"), 16 * mib);
  Waiting gone = begin_waiting(open("gone"), 4 * mib);
  const Waiting last = begin_waiting(open("last"), 6 * mib);
  gone.die();
  EXPECT_FALSE(first.is_answered());
  EXPECT_FALSE(last.is_answered()) << "it overtook a step that began earlier";
  let_go_of_the_oldest();
  EXPECT_EQ(first.answer().type, MessageType::space_granted);
  // Of 22 MiB these two need all.
  EXPECT_EQ(last.answer().type, MessageType::space_granted);
  EXPECT_TRUE(problems().empty());
}

}  // namespace
}  // namespace forebay::testing
