// SPDX-License-Identifier: Apache-2.0
// Which step a reader gets next where some cannot be read: every choice that readers have, for every way to share.
#include "readers/next_steps.h"

#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "readers/follower.h"
#include "readers/followers.h"
#include "readers/reader_registry.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/storage/stream_records.h"

namespace forebay::testing {
namespace {

using server::Absence;
using server::Follower;
using server::NextSteps;

/// A place in a stream; nobody is behind it.
class Place final : public Follower {
 public:
  using Follower::Follower;

  bool waits() const override { return true; }
  void drop_wait() override {}
  bool closing() const override { return false; }
  std::string describe() const override { return "a reader"; }
  std::string name() const override { return "reader"; }
  const server::Peer& peer() const override { std::abort(); }
  void end_with_process() override {}
  bool end_if_gone() override { return false; }
  void give(const storage::StepState&, bool, std::uint64_t) override {}
  void tell(wire::StepEventT) override {}
  void refuse(const Error&) override {}
  void stream_removed() override {}
  void come(server::ReaderSession&, server::Followers*) override {}
  Result<void> ask(server::ReaderSession&, std::uint32_t, const wire::StepWaitT&) override { return {}; }
  wire::StepEventT poll() override { return {}; }
  Result<void> move_cursor(server::ReaderSession&, const wire::CursorMoveT&) override { return {}; }
  void left(server::ReaderSession&) override {}
  void closed(server::ReaderSession&) override {}
  void shut_out(server::ReaderSession&, const Error&) override {}
  Result<wire::StepsAnswerT> list(server::ReaderSession&, std::uint64_t, std::uint32_t) override {
    return wire::StepsAnswerT();
  }

 private:
  void enter(server::Followers&) override {}
  void open_failed(const Error&) override {}
};

class NoStreams final : public server::StreamsToRead {
 public:
  Result<server::Followers*> find_to_read(const server::Peer&, const std::string&, const std::string&) override {
    return nullptr;
  }
  server::AccessRights rights_of(const server::Peer&, const std::string&) override { return {}; }
};

class NextStepsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t steps = 6;

  NextStepsTest() {
    EXPECT_TRUE(state_.apply(storage::group_formed(state_, 1, 1)));
    for (std::uint64_t step = 0; step < steps; ++step) EXPECT_TRUE(state_.apply(storage::step_committed(state_)));
  }

  Place& reader(OnUnavailable choice, StepDistribution distribution = StepDistribution::all_to_all) {
    auto made = std::make_unique<Place>(*loop_, streams_, *registry_);
    made->number = places_.size() + 1;
    made->distribution = distribution;
    made->on_unavailable = choice;
    Place& place = *made;
    sharing_.begin(place);
    places_.push_back(std::move(made));
    return place;
  }
  void set_away(std::initializer_list<std::uint64_t> steps_away, bool is_known = true) {
    away_.clear();
    for (const std::uint64_t step : steps_away) away_[step] = is_known;
  }
  /// The number of the step that the reader is given; nothing: it waits.
  std::optional<std::uint64_t> next(Place& place) {
    const auto found = next_steps_.find(place, state_.next_step);
    told_ = found.passed_over;
    waits_for_ = found.absence ? found.absence->what : "";
    if (found.step == nullptr || found.absence) return std::nullopt;
    next_steps_.take(place, *found.step);
    return found.step->committed.step;
  }

  TemporaryDirectory folder_;
  std::unique_ptr<server::EventLoop> loop_ = std::move(*server::EventLoop::create());
  std::unique_ptr<server::ReaderRegistry> registry_ =
      std::move(*server::ReaderRegistry::open(*loop_, folder_.path(), false, 0, 0));
  NoStreams streams_;
  storage::StreamState state_ = storage::StreamState::fresh(storage::test_uuid, "flow", 0);
  std::vector<std::unique_ptr<Place>> places_;
  server::StepSharing sharing_{state_};
  std::map<std::uint64_t, bool> away_;  ///< steps that cannot be read; whether that is known
  NextSteps next_steps_{state_, sharing_, [this](const journal::StepCommittedT& step) -> std::optional<Absence> {
                          const auto found = away_.find(step.step);
                          if (found == away_.end()) return std::nullopt;
                          return Absence{"step " + std::to_string(step.step) + " is away", found->second};
                        }};
  std::string told_;       ///< by the last next()
  std::string waits_for_;  ///< likewise
};

TEST_F(NextStepsTest, who_waits_gets_no_later_step_first) {
  Place& place = reader(OnUnavailable::wait);
  set_away({1});
  EXPECT_EQ(next(place), 0U);
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(next(place), std::nullopt);
    EXPECT_EQ(waits_for_, "step 1 is away");
    EXPECT_EQ(place.position, 1U) << "a writer with a LagLimit waits for it";
  }
  set_away({});
  EXPECT_EQ(next(place), 1U);
  EXPECT_EQ(next(place), 2U);
  EXPECT_EQ(place.skipped, 0U);
}

TEST_F(NextStepsTest, who_wants_an_error_stays_where_it_is) {
  Place& place = reader(OnUnavailable::error);
  set_away({0});
  EXPECT_EQ(next(place), std::nullopt);
  EXPECT_EQ(place.position, 0U);
  set_away({});
  EXPECT_EQ(next(place), 0U);
}

TEST_F(NextStepsTest, who_skips_is_told_which_steps_and_counts_them) {
  Place& place = reader(OnUnavailable::skip);
  set_away({1, 2, 5});
  EXPECT_EQ(next(place), 0U);
  EXPECT_EQ(next(place), 3U);
  EXPECT_EQ(told_, "steps 1 to 2 are passed over: step 2 is away");
  EXPECT_EQ(std::exchange(place.skipped, 0), 2U);
  EXPECT_EQ(next(place), 4U);
  EXPECT_EQ(told_, "");
  EXPECT_EQ(next(place), std::nullopt);
  EXPECT_EQ(told_, "step 5 is passed over: step 5 is away");
  EXPECT_EQ(place.position, steps);
  set_away({});
  EXPECT_EQ(next(place), std::nullopt) << "it is not given later";
  EXPECT_EQ(place.skipped, 1U);
}

TEST_F(NextStepsTest, who_skips_waits_until_it_is_known_who_is_away) {
  Place& place = reader(OnUnavailable::skip);
  set_away({0}, false);
  EXPECT_EQ(next(place), std::nullopt);
  EXPECT_EQ(told_, "");
  EXPECT_EQ(place.position, 0U);
  set_away({});
  EXPECT_EQ(next(place), 0U);
}

TEST_F(NextStepsTest, who_takes_the_newest_waits_for_it_or_gets_the_newest_that_is_there) {
  Place& waiting = reader(OnUnavailable::wait);
  Place& skipping = reader(OnUnavailable::skip);
  waiting.latest_only = skipping.latest_only = true;
  set_away({4, 5});
  EXPECT_EQ(next(waiting), std::nullopt);
  EXPECT_EQ(next(skipping), 3U);
  EXPECT_EQ(std::exchange(skipping.skipped, 0), 3U);
  EXPECT_EQ(next(skipping), std::nullopt);
  EXPECT_EQ(skipping.position, steps);
  EXPECT_EQ(skipping.skipped, 2U);
  set_away({});
  EXPECT_EQ(next(waiting), 5U);
  EXPECT_EQ(waiting.skipped, 5U);
}

TEST_F(NextStepsTest, steps_on_demand_stay_for_all_until_somebody_takes_them) {
  Place& first = reader(OnUnavailable::wait, StepDistribution::on_demand);
  Place& second = reader(OnUnavailable::wait, StepDistribution::on_demand);
  set_away({1});
  EXPECT_EQ(next(first), 0U);
  EXPECT_EQ(next(second), std::nullopt);
  EXPECT_EQ(next(first), std::nullopt);
  set_away({});
  EXPECT_EQ(next(first), 1U);
  EXPECT_EQ(next(second), 2U);
}

TEST_F(NextStepsTest, readers_in_turn_wait_for_their_own_steps_alone) {
  Place& first = reader(OnUnavailable::wait, StepDistribution::round_robin);
  Place& second = reader(OnUnavailable::skip, StepDistribution::round_robin);
  set_away({0, 1});
  EXPECT_EQ(next(first), std::nullopt);
  EXPECT_EQ(next(second), 3U);
  EXPECT_EQ(told_, "step 1 is passed over: step 1 is away");
  EXPECT_EQ(second.skipped, 1U);
  set_away({});
  EXPECT_EQ(next(first), 0U);
  EXPECT_EQ(next(first), 2U);
}

}  // namespace
}  // namespace forebay::testing
