// SPDX-License-Identifier: Apache-2.0
// The checks of invariants can fail: each is broken from outside, and the process ends and says what.
#include <functional>

#include <gtest/gtest.h>

#include "base/invariant.h"
#include "daemon/invariant_checks.h"
#include "reservations/reservation.h"
#include "storage/stream_state.h"
#include "streams/stream.h"
#include "tests/support/invariant_breaker.h"
#include "tests/unit/server/server_fixture.h"

namespace forebay::server {
namespace {

using testing::RawClient;
using testing::ServerTest;

TEST(Invariants, of_a_space_map) {
  SpaceMap map(2, std::uint64_t{1} << 20);
  ASSERT_TRUE(map.take({0, 8192, 4096}));
  map.close(1);
  EXPECT_EQ(map.check(), 2 + 3U);
  InvariantBreaker::count_more_free_space(map);
  EXPECT_DEATH(map.check(), "1044480 bytes are free, counted are 1048576");
}

TEST(Invariants, of_a_reader_groups_turns) {
  const auto begun = [] {
    GroupTurns turns(2, OnReaderLost::go_on);
    turns.begin();
    EXPECT_TRUE(turns.ask(0, 1, -1));
    EXPECT_TRUE(turns.ask(1, 1, 100));
    turns.decide({});
    turns.leave(1);
    EXPECT_GT(turns.check(), 0U);
    return turns;
  };
  GroupTurns ahead = begun();
  InvariantBreaker::take_turn_alone(ahead);
  EXPECT_DEATH(ahead.check(), "rank 0 of 2 has the answer to another turn");
  GroupTurns gone = begun();
  InvariantBreaker::ask_as_gone(gone, 1);
  EXPECT_DEATH(gone.check(), "rank 1 of 2 asks and is not there");
}

TEST(Invariants, of_a_streams_state) {
  auto state = storage::StreamState::fresh("uuid", "flow", 1);
  EXPECT_GT(state.check(), 0U);
  state.durable_next = 1;
  EXPECT_DEATH(state.check(), "stream flow: steps are durable that are not committed");
  state.next_step = 1;
  state.steps[1].committed.step = 1;
  EXPECT_DEATH(state.check(), "stream flow: the next step exists already");
}

class BrokenServer : public ServerTest {
 protected:
  /// Ends the process in the loop's thread.
  void break_and_check(const std::function<void(Server&)>& breaks) {
    in_loop([&](Server& server) {
      breaks(server);
      InvariantChecks(server.reservations(), server.readers(), ServerOptions::check_all).turn();
    });
  }
  static Reservation& reservation(Server& server) { return *server.reservations().all().at("res"); }
  static Stream& stream_of(Server& server) { return *reservation(server).find_stream("flow"); }

  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ServerTest::SetUp();
  }
};

TEST_F(BrokenServer, is_looked_at_after_each_turn) {
  if (!checks_invariants) GTEST_SKIP() << "this build has no checks";
  RawClient client = writer();
  write_step(client, 0);
  EXPECT_DEATH(
      {
        in_loop([](Server& server) { InvariantBreaker::count_more_free_space(reservation(server).space().map()); });
        in_loop([](Server&) {});
      },
      "bytes are free, counted are");
}

TEST_F(BrokenServer, has_space_with_two_holders) {
  RawClient client = writer();
  write_step(client, 0);
  EXPECT_DEATH(break_and_check([](Server& server) {
                 const auto held = stream_of(server).extents_of_steps();
                 reservation(server).space().map().release(held.front());
               }),
               "which stream res/flow holds, are free for others");
}

TEST_F(BrokenServer, has_space_without_a_holder) {
  EXPECT_DEATH(break_and_check([](Server& server) { reservation(server).space().map().take({0, 0, 4096}); }),
               "0 bytes have holders");
}

TEST_F(BrokenServer, counts_a_pin_that_nobody_has) {
  RawClient client = writer();
  write_step(client, 0);
  RawClient follower = reader(reader_open());
  ASSERT_NE(wait_step(follower)->step, nullptr);
  EXPECT_DEATH(break_and_check([](Server& server) {
                 InvariantBreaker::count_another_holder(stream_of(server).followers().pins());
               }),
               "step 0 of epoch 1: has another number of holders than counted");
  EXPECT_DEATH(break_and_check([](Server& server) { InvariantBreaker::free_used_slot(server.readers().pins()); }),
               "table of pins: 1 slots are used");
  EXPECT_DEATH(break_and_check([](Server& server) { InvariantBreaker::lose_slot(server.readers().pins()); }),
               "tells a restarted server of another pin");
}

}  // namespace
}  // namespace forebay::server
