// SPDX-License-Identifier: Apache-2.0
// Readers on other nodes whose connection is cut: what they hold stays for a while, whoever notices first.
#include "tests/unit/server/daemon/remote_fixture.h"

namespace forebay::testing {
namespace {

class CutReaderTest : public RemoteTest {
 protected:
  void SetUp() override {
    RemoteTest::SetUp();
    local_.emplace(connect());
    wire::WriterOpenT open = writer_open();
    open.retention = "last:1";
    EXPECT_EQ(local_->call(MessageType::writer_open, open).type, MessageType::writer_opened);
  }
  void TearDown() override {
    local_.reset();
    RemoteTest::TearDown();
  }

  void write(std::uint64_t step, std::uint64_t bytes = 8192) { write_step(*local_, step, bytes); }

  std::unique_ptr<wire::ReaderOpenedT> open(RawClient& client, const wire::ReaderOpenT& asked) {
    return RawClient::unpack<wire::ReaderOpened>(client.call(MessageType::reader_open, asked));
  }
  /// What it says that comes back with these steps.
  static wire::ReaderOpenT back(const wire::ReaderOpenT& asked, std::uint64_t session, std::uint64_t steps) {
    wire::ReaderOpenT again = asked;
    again.resume = true;
    again.session = session;
    again.epoch = 1;
    again.position = steps;
    for (std::uint64_t step = 0; step < steps; ++step) again.pins.emplace_back(step, 1, 0);
    return again;
  }
  static std::optional<ErrorCode> check(RawClient& client, std::uint64_t step) {
    wire::StepCheckT asked;
    asked.key = std::make_unique<wire::StepKey>(step, 1, 0);
    return RawClient::failure(client.call(MessageType::step_check, asked));
  }
  /// How many of these steps are still there for whoever holds none.
  std::uint64_t there(RawClient& looks, std::uint64_t steps) {
    std::uint64_t found = 0;
    for (std::uint64_t step = 0; step < steps; ++step) found += check(looks, step) ? 0 : 1;
    return found;
  }

  std::optional<RawClient> local_;
};

class BriefGraceTest : public CutReaderTest {
 protected:
  void SetUp() override {
    options_.cut_grace_ms = 1;
    CutReaderTest::SetUp();
  }
};

TEST_F(CutReaderTest, a_reader_that_comes_back_has_the_steps_that_it_held) {
  const fabric::Token reads = token(fabric::right_read);
  write(0);
  const wire::ReaderOpenT asked = reader_open("render");
  std::uint64_t session = 0;
  {
    RawClient cut = admitted(reads);
    session = open(cut, asked)->session;
    ASSERT_TRUE(wait_step(cut)->step);
  }
  write(1);
  write(2);
  RawClient client = admitted(reads);
  const auto opened = open(client, back(asked, session, 1));
  EXPECT_EQ(opened->session, session);
  EXPECT_TRUE(opened->lost_pins.empty());
  EXPECT_EQ(check(client, 0), std::nullopt);
}

TEST_F(CutReaderTest, a_reader_may_notice_the_cut_before_the_server) {
  const fabric::Token reads = token(fabric::right_read);
  write(0);
  const wire::ReaderOpenT asked = reader_open("render");
  RawClient before = admitted(reads);
  const std::uint64_t session = open(before, asked)->session;
  ASSERT_TRUE(wait_step(before)->step);
  write(1);
  // Also its consumer's name is free for it at once.
  RawClient client = admitted(reads);
  const auto opened = open(client, back(asked, session, 1));
  EXPECT_EQ(opened->session, session);
  EXPECT_TRUE(opened->lost_pins.empty());
  EXPECT_TRUE(before.ended());
  EXPECT_EQ(check(client, 0), std::nullopt);
  EXPECT_EQ(wait_step(client)->step->summary->step(), 1U);
  // Once it lets go, nobody holds the step any more.
  wire::StepReleaseT release;
  release.steps.emplace_back(0, 1, 0);
  client.send(MessageType::step_release, release);
  EXPECT_EQ(check(client, 0), ErrorCode::step_gone);
}

TEST_F(CutReaderTest, nobody_else_ends_a_readers_connection) {
  write(0);
  RawClient other = writer("other");
  const fabric::Token reads = token(fabric::right_read);
  const wire::ReaderOpenT asked = reader_open();
  RawClient here = connect();
  const std::uint64_t local_session = open(here, asked)->session;
  RawClient remote = admitted(reads);
  const std::uint64_t remote_session = open(remote, asked)->session;
  for (const std::uint64_t session : {local_session, remote_session}) {
    // Of another stream, and on the server's node: neither was that reader.
    RawClient stranger = admitted(reads);
    EXPECT_NE(open(stranger, back(reader_open({}, "other"), session, 0))->session, session);
    RawClient neighbour = connect();
    EXPECT_NE(open(neighbour, back(asked, session, 0))->session, session);
  }
  RawClient stranger = admitted(reads);
  EXPECT_NE(open(stranger, back(asked, local_session, 0))->session, local_session);
  EXPECT_TRUE(wait_step(here)->step);
  EXPECT_TRUE(wait_step(remote)->step);
}

TEST_F(CutReaderTest, what_stays_for_all_of_them_is_bounded) {
  const fabric::Token reads = token(fabric::right_read);
  const std::uint64_t bytes = 6 * mib;
  const wire::ReaderOpenT asked = reader_open("render");
  std::uint64_t session = 0;
  RawClient looks = connect();
  {
    RawClient cut = admitted(reads);
    session = open(cut, asked)->session;
    for (std::uint64_t step = 0; step < 4; ++step) {
      write(step, bytes);
      ASSERT_TRUE(wait_step(cut)->step);
    }
    EXPECT_EQ(open(looks, reader_open())->lost_pins.size(), 0U);
    EXPECT_EQ(there(looks, 4), 4U);
  }
  write(4);
  // A quarter of the reservation.
  EXPECT_TRUE(comes_true([&] { return there(looks, 4) == 2; }));
  RawClient client = admitted(reads);
  EXPECT_EQ(open(client, back(asked, session, 4))->lost_pins.size(), 2U);
}

TEST_F(BriefGraceTest, a_reader_that_does_not_come_back_holds_nothing_for_long) {
  write(0);
  RawClient looks = connect();
  EXPECT_EQ(open(looks, reader_open())->lost_pins.size(), 0U);
  {
    RawClient cut = admitted(fabric::right_read);
    open(cut, reader_open("render"));
    ASSERT_TRUE(wait_step(cut)->step);
    write(1);
    EXPECT_EQ(check(looks, 0), std::nullopt);
  }
  EXPECT_TRUE(comes_true([&] { return check(looks, 0) == ErrorCode::step_gone; }));
}

TEST_F(CutReaderTest, a_revoked_token_holds_nothing) {
  const fabric::Token reads = token(fabric::right_read);
  write(0);
  RawClient looks = connect();
  EXPECT_EQ(open(looks, reader_open())->lost_pins.size(), 0U);
  RawClient client = admitted(reads);
  open(client, reader_open("render"));
  ASSERT_TRUE(wait_step(client)->step);
  write(1);
  wire::TokenRevokeT revoke;
  revoke.token = fabric::to_text(reads);
  EXPECT_EQ(connect().call(MessageType::token_revoke, revoke).type, MessageType::done);
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(comes_true([&] { return check(looks, 0) == ErrorCode::step_gone; }));
}

}  // namespace
}  // namespace forebay::testing
