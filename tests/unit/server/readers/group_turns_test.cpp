// SPDX-License-Identifier: Apache-2.0
// The turns of a reader group under any sequence of events: steps that come, are dropped and withdrawn between the
// ranks' calls; ranks of any speed that poll, close and die; servers that are killed while they answer.
#include "readers/group_turns.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/randomness.h"

namespace forebay::testing {
namespace {

using server::GroupTurns;
using server::StepKey;
using server::TurnAnswer;

/// What a rank knows, as its process does.
struct Rank {
  bool alive = true;
  bool closed = false;
  bool connected = true;  ///< to the server of now
  std::uint64_t turn = 0;
  TurnAnswer answer;
  std::vector<std::uint32_t> gone;
  bool asks = false;
  std::int64_t timeout_ms = -1;
  std::uint64_t joined_after = 0;  ///< the turns up to this one it has never seen
  std::optional<Error> error;
  std::optional<StepKey> pin;
  std::uint64_t position = 0;  ///< of the step that it wants next
  std::map<std::uint64_t, TurnAnswer> answers;

  bool reads() const { return alive && !closed && !error; }
};

class World {
 public:
  World(Random& random, std::uint32_t ranks, OnReaderLost on_lost)
      : random_(random), on_lost_(on_lost), ranks_(ranks), server_(std::in_place, ranks, on_lost) {
    server_->begin();
  }

  void run() {
    const std::uint64_t events = 20 + below(random_, 60);
    for (std::uint64_t i = 0; i < events && !::testing::Test::HasFatalFailure(); ++i) event();
    finish();
  }

 private:
  void event() {
    switch (below(random_, 16)) {
      case 0:
      case 1:
      case 2:
        kept_.insert({next_step_++, epoch_});
        decide();
        break;
      case 3:
        drop(below(random_, 4));
        break;
      case 4:
        drop(kept_.size());
        break;
      case 5:
        withdraw();
        break;
      case 6:
        timeout();
        break;
      case 7:
        if (chance(random_, 4)) kill_server();
        break;
      case 8:
        if (chance(random_, 6)) kill(some_rank());
        break;
      case 9:
        if (chance(random_, 8)) close(some_rank());
        break;
      case 10:
        restart(some_rank());
        look_for_absent();
        break;
      default:
        act(some_rank());
    }
    check();
  }

  std::uint32_t some_rank() { return static_cast<std::uint32_t>(below(random_, ranks_.size())); }

  // The stream.
  void drop(std::uint64_t count) {
    for (; count > 0 && !kept_.empty(); --count) kept_.erase(kept_.begin());
  }
  void withdraw() {
    if (next_step_ == 0) return;
    const std::uint64_t first = next_step_ - 1 - below(random_, std::min<std::uint64_t>(next_step_, 3));
    kept_.erase(kept_.lower_bound({first, 0}), kept_.end());
    next_step_ = first;
    ++epoch_;
    position_ = std::min(position_, first);
    for (Rank& rank : ranks_) rank.position = std::min(rank.position, first);
  }
  bool exists(const StepKey& key) const {
    const bool pinned = std::ranges::any_of(ranks_, [&](const Rank& rank) { return rank.alive && rank.pin == key; });
    return pinned || held_.contains(key) || kept_.contains({key.second, key.first});
  }

  // A rank's process.
  void act(std::uint32_t number) {
    Rank& rank = ranks_[number];
    if (!rank.reads()) return;
    if (!rank.connected) {
      come_back(number);
      return;
    }
    if (rank.asks) return;
    rank.pin.reset();  // it has ended its step
    ask(number, chance(random_, 3) ? 0 : chance(random_, 2) ? 100 : -1);
  }
  void ask(std::uint32_t number, std::int64_t timeout_ms) {
    Rank& rank = ranks_[number];
    rank.asks = true;
    rank.timeout_ms = timeout_ms;
    auto asked = server_->ask(number, rank.turn + 1, timeout_ms);
    if (!asked) {
      rank.error = asked.error();
      ASSERT_TRUE(server_->ended()) << asked.error().what;
      return;
    }
    if (*asked == GroupTurns::Asked::answered) {
      give_again(number);
      return;
    }
    decide();
  }
  void give_again(std::uint32_t number) {
    const TurnAnswer answer = server_->answer();
    if (answer.kind == NextStep::Kind::step && !exists(answer.step)) {
      server_->end({ErrorCode::step_gone, "gone", ""});
      end_told();
    } else {
      receive(number, answer);
    }
  }
  void receive(std::uint32_t number, const TurnAnswer& answer) {
    Rank& rank = ranks_[number];
    rank.asks = false;
    ++rank.turn;
    rank.answer = answer;
    rank.gone = server_->gone();
    if (answer.kind == NextStep::Kind::step) {
      rank.pin = answer.step;
      rank.position = position_;
    }
    rank.answers.emplace(rank.turn, answer);
    for (const Rank& other : ranks_) {
      const auto known = other.answers.find(rank.turn);
      ASSERT_TRUE(!other.reads() || known == other.answers.end() || known->second == answer)
          << "turn " << rank.turn << ": rank " << number << " got another answer than another rank";
    }
  }
  void come_back(std::uint32_t number) {
    Rank& rank = ranks_[number];
    if (server_->ended()) {
      rank.error = *server_->ended();
      return;
    }
    if (server_->was_lost(number)) {
      if (server_->awaited() > 0) {
        rank.error = Error{ErrorCode::busy, "the turn is not known yet", ""};
        return;
      }
      rank.connected = true;
      rejoin(number);
      if (std::exchange(rank.asks, false)) ask(number, rank.timeout_ms);
      return;
    }
    const bool first = server_->awaited() == ranks_.size();
    const std::uint64_t before = server_->turn();
    // Presence files tell who lives: what this rank knows may be older.
    std::vector<std::uint32_t> gone;
    std::ranges::copy_if(rank.gone, std::back_inserter(gone),
                         [&](std::uint32_t other) { return !ranks_[other].alive || ranks_[other].closed; });
    auto back = server_->come_back(number, rank.turn, rank.answer, gone);
    ASSERT_TRUE(back) << back.error().what;
    rank.connected = true;
    if (first || server_->turn() > before) position_ = rank.position;
    if (server_->turn() > before) held_.clear();
    const bool newest = rank.turn == server_->turn();
    if (newest && rank.answer.kind == NextStep::Kind::step && exists(rank.answer.step)) held_.insert(rank.answer.step);
    for (const std::uint32_t other : *back) give_again(other);
    if (std::exchange(rank.asks, false)) ask(number, rank.timeout_ms);
    decide();
  }
  void rejoin(std::uint32_t number) {
    server_->join(number);
    Rank& rank = ranks_[number];
    rank.joined_after = rank.turn = server_->turn();
    rank.answer = server_->answer();
    rank.position = position_;
    rank.gone.clear();
  }
  void kill(std::uint32_t number) {
    Rank& rank = ranks_[number];
    if (!rank.alive || rank.closed) return;
    rank.alive = false;
    rank.pin.reset();
    server_->lose(number, "was killed");
    end_told();
    decide();
  }
  void close(std::uint32_t number) {
    Rank& rank = ranks_[number];
    if (!rank.reads() || !rank.connected || rank.asks) return;
    rank.closed = true;
    rank.pin.reset();
    server_->leave(number);
    decide();
  }
  void restart(std::uint32_t number) {
    Rank& rank = ranks_[number];
    const bool joins = on_lost_ == OnReaderLost::go_on && !server_->ended() && server_->was_lost(number);
    if (rank.alive || !joins || server_->awaited() > 0) return;
    rank = Rank{};
    rejoin(number);
  }

  // The server.
  void timeout() {
    if (server_->is_complete() && server_->timeout_ms() > 0)
      answer({NextStep::Kind::not_ready, {}, StreamStatus::live, ""});
  }
  void decide() {
    if (!server_->is_complete()) return;
    held_.clear();
    const auto next = kept_.lower_bound({position_, 0});
    if (next != kept_.end()) {
      position_ = next->first + 1;
      answer({NextStep::Kind::step, {next->second, next->first}, StreamStatus::live, ""});
    } else if (ended_) {
      answer({NextStep::Kind::end_of_stream, {}, StreamStatus::ended, ""});
    } else if (server_->timeout_ms() == 0) {
      answer({NextStep::Kind::not_ready, {}, StreamStatus::live, ""});
    }
  }
  void answer(const TurnAnswer& answer) {
    const bool dies = chance(random_, 20);
    const auto ranks = server_->decide(answer);
    std::uint64_t answered = dies ? below(random_, ranks.size() + 1) : ranks.size();
    for (const std::uint32_t rank : ranks) {
      if (answered-- == 0) break;
      receive(rank, answer);
    }
    if (dies) kill_server();
  }
  void kill_server() {
    if (server_->ended()) return;
    server_.emplace(static_cast<std::uint32_t>(ranks_.size()), on_lost_);
    for (Rank& rank : ranks_) rank.connected = false;
    // Pins outlive it: those of ranks that have let go meanwhile until they say so, which is modelled as no hold.
    held_.clear();
  }
  /// Its presence file tells that it is gone.
  void look_for_absent() {
    for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
      const Rank& rank = ranks_[number];
      if (server_->is_awaited(number) && (!rank.alive || rank.closed)) server_->lose(number, "has ended");
    }
    end_told();
    decide();
  }
  void end_told() {
    if (!server_->ended()) return;
    for (Rank& rank : ranks_) {
      if (rank.reads() && rank.connected && rank.asks) rank.error = *server_->ended();
    }
  }

  // What must hold.
  void check() {
    std::set<StepKey> pins;
    std::uint64_t least = ~std::uint64_t{0};
    std::uint64_t most = 0;
    for (const Rank& rank : ranks_) {
      if (rank.pin && rank.alive) pins.insert(*rank.pin);
      if (!rank.reads()) continue;
      least = std::min(least, rank.turn);
      most = std::max(most, rank.turn);
    }
    ASSERT_LE(pins.size(), 1U) << "a group holds one step";
    ASSERT_LE(held_.size(), 1U);
    ASSERT_TRUE(most == 0 || most - least <= 1) << "ranks are more than one turn apart";
  }

  /// The stream ends. Every rank that lives must get to the end, or be told why not.
  void finish() {
    ended_ = true;
    const auto is_done = [](const Rank& rank) {
      return !rank.reads() || (rank.connected && rank.answer.kind == NextStep::Kind::end_of_stream);
    };
    for (int round = 0; round < 400 && !::testing::Test::HasFatalFailure(); ++round) {
      if (std::ranges::all_of(ranks_, is_done)) break;
      look_for_absent();
      for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
        if (!is_done(ranks_[number])) act(number);
      }
      decide();
      check();
    }
    ASSERT_TRUE(std::ranges::all_of(ranks_, is_done)) << "a rank waits for ever:" << describe();
    for (const Rank& rank : ranks_) {
      if (!rank.reads()) continue;
      ASSERT_FALSE(server_->ended()) << "one rank has got to the end, the group has not";
      ASSERT_GE(rank.turn, rank.joined_after);
    }
  }

  std::string describe() const {
    std::string text = "\nserver: turn " + std::to_string(server_->turn()) + (server_->ended() ? ", ended" : "");
    for (const Rank& rank : ranks_) {
      text += "\nrank at turn " + std::to_string(rank.turn) + (rank.alive ? "" : ", dead") +
              (rank.closed ? ", closed" : "") + (rank.connected ? "" : ", cut off") + (rank.asks ? ", asks" : "") +
              (rank.error ? ", told: " + rank.error->what : "");
    }
    return text;
  }

  Random& random_;
  const OnReaderLost on_lost_;
  std::vector<Rank> ranks_;
  std::optional<GroupTurns> server_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> kept_;  ///< numbers and epochs
  std::uint64_t next_step_ = 0;
  std::uint32_t epoch_ = 1;
  std::uint64_t position_ = 0;
  bool ended_ = false;
  std::set<StepKey> held_;  ///< by the server, for ranks that have not got the last answer
};

TEST(GroupTurnsTest, every_living_rank_gets_every_answer_and_the_same_one) {
  const std::uint64_t count = test_count(10'000);
  for (std::uint64_t i = 0; i < count; ++i) {
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(test_seed() + i));
    Random random(test_seed() + i);
    World world(random, static_cast<std::uint32_t>(2 + below(random, 4)),
                chance(random, 2) ? OnReaderLost::end : OnReaderLost::go_on);
    world.run();
    if (HasFatalFailure()) return;
  }
}

TEST(GroupTurnsTest, a_turn_is_complete_when_the_last_rank_has_asked) {
  GroupTurns turns(3, OnReaderLost::end);
  turns.begin();
  ASSERT_TRUE(turns.ask(2, 1, 0));
  ASSERT_TRUE(turns.ask(0, 1, -1));
  EXPECT_FALSE(turns.is_complete());
  EXPECT_EQ(turns.missing(5), std::vector<std::uint32_t>{1});
  ASSERT_TRUE(turns.ask(1, 1, 500));
  EXPECT_TRUE(turns.is_complete());
  EXPECT_EQ(turns.timeout_ms(), 0) << "the shortest counts for all";
  EXPECT_EQ(turns.decide({NextStep::Kind::not_ready, {}, StreamStatus::live, ""}).size(), 3U);
  EXPECT_EQ(turns.turn(), 1U);
  EXPECT_TRUE(turns.is_idle());
  EXPECT_FALSE(turns.ask(1, 1, 0)) << "it has the answer";
  EXPECT_FALSE(turns.ask(1, 3, 0));
}

// Who opens says how many ranks there are. To look at each of these would keep the server's loop for minutes.
TEST(GroupTurnsTest, ranks_that_never_came_are_not_looked_at_one_by_one) {
  constexpr std::uint32_t ranks = std::numeric_limits<std::uint32_t>::max();
  GroupTurns turns(ranks, OnReaderLost::go_on);
  ASSERT_TRUE(turns.come_back(0, 0, {}, {}));
  ASSERT_TRUE(turns.come_back(7, 0, {}, {}));
  turns.lose_awaited("did not come back", {5, 7});
  EXPECT_EQ(turns.awaited(), 1U) << "rank 5 still lives";
  EXPECT_EQ(turns.gone_count(), 0U) << "the others take no memory";
  EXPECT_TRUE(turns.was_lost(6));
  EXPECT_FALSE(turns.was_lost(5));
  ASSERT_TRUE(turns.ask(0, 1, -1));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(turns.missing(17), (std::vector<std::uint32_t>{5, 7}));
  ASSERT_TRUE(turns.come_back(5, 0, {}, {}));
  EXPECT_EQ(turns.awaited(), 0U);
  EXPECT_FALSE(turns.is_awaited(6)) << "it is lost for good";
  turns.leave(5);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(turns.missing(17), std::vector<std::uint32_t>{7});
  ASSERT_TRUE(turns.ask(7, 1, -1));
  EXPECT_TRUE(turns.is_complete());
  turns.check();
}

TEST(GroupTurnsTest, few_of_many_ranks_that_have_gone_are_passed_over_to_find_missing_ones) {
  std::vector<std::uint32_t> gone(65536);
  std::iota(gone.begin(), gone.end(), 2);
  GroupTurns turns(100'000, OnReaderLost::go_on);
  ASSERT_TRUE(turns.come_back(0, 0, {}, gone));
  EXPECT_EQ(turns.missing(17), (std::vector<std::uint32_t>{0, 1}));
}

TEST(GroupTurnsTest, a_rank_that_missed_the_last_answer_gets_it_again) {
  GroupTurns turns(2, OnReaderLost::end);
  const TurnAnswer seventh{NextStep::Kind::step, {1, 42}, StreamStatus::live, ""};
  ASSERT_TRUE(turns.come_back(1, 6, {NextStep::Kind::step, {1, 41}, StreamStatus::live, ""}, {}));
  ASSERT_TRUE(turns.ask(1, 7, -1));
  EXPECT_FALSE(turns.is_complete()) << "rank 0 has not told its last turn";
  const auto missed = turns.come_back(0, 7, seventh, {});
  ASSERT_TRUE(missed);
  EXPECT_EQ(*missed, std::vector<std::uint32_t>{1});
  EXPECT_EQ(turns.turn(), 7U);
  EXPECT_EQ(turns.answer(), seventh);
}

TEST(GroupTurnsTest, ranks_that_contradict_each_other_end_the_group) {
  GroupTurns turns(2, OnReaderLost::go_on);
  ASSERT_TRUE(turns.come_back(0, 7, {NextStep::Kind::step, {1, 42}, StreamStatus::live, ""}, {}));
  EXPECT_FALSE(turns.come_back(1, 7, {NextStep::Kind::step, {1, 43}, StreamStatus::live, ""}, {}));
  EXPECT_TRUE(turns.ended());
}

}  // namespace
}  // namespace forebay::testing
