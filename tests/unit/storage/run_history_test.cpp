// SPDX-License-Identifier: Apache-2.0
// Which steps belong to which run, as a stream's records say it: also after a checkpoint, and in older journals.
#include "storage/run_history.h"

#include <gtest/gtest.h>

#include "tests/unit/storage/stream_records.h"

namespace forebay::storage {
namespace {

class RunHistoryTest : public ::testing::Test {
 protected:
  StreamState state = StreamState::fresh(test_uuid, "flow", 1);

  void begin(const std::string& run, std::optional<std::uint64_t> withdraws_from = std::nullopt) {
    auto record = group_formed(state, state.group ? state.group->incarnation + 1 : 1, 1);
    record.run = run;
    if (withdraws_from) {
      record.withdraws_from = *withdraws_from;
      record.next_step = *withdraws_from;
      ++record.epoch;
    }
    ASSERT_TRUE(state.apply(record));
  }
  void commit(int steps) {
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(state.apply(step_committed(state)));
  }
  void end(StreamStatus status = StreamStatus::ended) {
    journal::GroupEndedT record;
    record.incarnation = state.group->incarnation;
    record.status = static_cast<std::uint8_t>(status);
    ASSERT_TRUE(state.apply(record));
  }
  void run(const std::string& name, int steps, StreamStatus status = StreamStatus::ended) {
    begin(name);
    commit(steps);
    end(status);
  }
  void drop(std::uint64_t first, std::uint64_t last) {
    journal::StepsDroppedT record;
    record.ranges.emplace_back(first, last);
    ASSERT_TRUE(state.apply(record));
  }
  /// "first-end status", or "none"; the same from a checkpoint of the state.
  std::string range(const std::string& name) const {
    const auto text = [&](const StreamState& from) -> std::string {
      const auto found = from.steps_of_run(name);
      if (!found) return "none";
      if (!found->end) return std::to_string(found->first) + "-";
      return std::to_string(found->first) + "-" + std::to_string(*found->end) + " " +
             std::string(to_string(found->status));
    };
    EXPECT_EQ(text(state), text(state_from_checkpoint(state)));
    return text(state);
  }
};

TEST_F(RunHistoryTest, a_run_lasts_over_its_groups_until_another_one_begins) {
  EXPECT_EQ(range("a"), "none");
  run("a", 2, StreamStatus::interrupted);
  EXPECT_EQ(range("a"), "0-");
  run("a", 1);
  run("b", 2, StreamStatus::interrupted);
  EXPECT_EQ(range("a"), "0-3 ended");
  EXPECT_EQ(range("b"), "3-");
  begin("");
  EXPECT_EQ(range("b"), "3-5 interrupted");
}

TEST_F(RunHistoryTest, steps_before_the_first_run_belong_to_none) {
  run("", 3);
  begin("a");
  EXPECT_EQ(range("a"), "3-");
}

TEST_F(RunHistoryTest, a_run_that_begins_again_is_taken_from_there) {
  run("a", 1);
  run("b", 1);
  run("a", 1);
  EXPECT_EQ(range("a"), "2-");
}

TEST_F(RunHistoryTest, a_run_without_steps_leaves_no_trace) {
  run("a", 2);
  run("b", 0);
  EXPECT_EQ(range("b"), "2-");
  begin("c");
  EXPECT_EQ(range("b"), "none");
  EXPECT_EQ(range("a"), "0-2 ended");
  end();
  begin("a");
  EXPECT_EQ(range("a"), "0-") << "nobody has written in between";
}

TEST_F(RunHistoryTest, earlier_runs_without_kept_steps_are_forgotten) {
  run("a", 2);
  run("b", 2);
  begin("c");
  commit(1);
  drop(0, 1);
  EXPECT_EQ(range("a"), "none");
  EXPECT_EQ(range("b"), "2-4 ended");
  drop(2, 4);
  EXPECT_EQ(range("c"), "4-") << "the last one stays";
  end();
  begin("d");
  EXPECT_EQ(checkpoint_of(state).runs.size(), 1U);
}

TEST_F(RunHistoryTest, withdrawn_steps_take_their_runs_with_them) {
  run("a", 3);
  run("b", 3);
  begin("b", 4);
  EXPECT_EQ(range("b"), "3-");
  commit(1);
  end();
  begin("c", 2);
  EXPECT_EQ(range("a"), "0-2 ended");
  EXPECT_EQ(range("b"), "none");
  EXPECT_EQ(range("c"), "2-");
  commit(1);
  end();
  begin("c", 0);
  EXPECT_EQ(range("a"), "none");
  EXPECT_EQ(range("c"), "0-");
}

TEST_F(RunHistoryTest, a_cut_behind_the_last_run_leaves_the_one_before_over) {
  run("a", 3);
  run("b", 2);
  journal::StepsWithdrawnT cut;
  cut.first = 2;
  cut.epoch = 2;
  ASSERT_TRUE(state.apply(cut));
  EXPECT_EQ(range("a"), "0-2 interrupted");
  EXPECT_EQ(range("b"), "none");
  begin("b");
  EXPECT_EQ(range("a"), "0-2 ended");
  EXPECT_EQ(range("b"), "2-");
}

TEST_F(RunHistoryTest, of_an_older_checkpoint_only_the_last_groups_steps_are_known) {
  run("a", 2);
  run("a", 2);
  auto record = checkpoint_of(state);
  record.runs.clear();
  StreamState loaded;
  ASSERT_TRUE(loaded.apply(std::move(record)));
  const auto found = loaded.steps_of_run("a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first, 2U);
  EXPECT_FALSE(found->end);
}

TEST_F(RunHistoryTest, a_checkpoint_with_impossible_runs_is_corrupt) {
  run("a", 2);
  run("b", 2);
  const auto spoilt = [&](auto change) {
    auto record = checkpoint_of(state);
    change(record);
    StreamState loaded;
    const auto applied = loaded.apply(std::move(record));
    return !applied && applied.error().code == ErrorCode::corrupt;
  };
  EXPECT_FALSE(spoilt([](auto&) {}));
  EXPECT_TRUE(spoilt([](auto& record) { record.runs[1]->first = 0; }));
  EXPECT_TRUE(spoilt([](auto& record) { record.runs[1]->first = 5; }));
  EXPECT_TRUE(spoilt([](auto& record) { record.runs[0]->status = 0; }));
}

}  // namespace
}  // namespace forebay::storage
