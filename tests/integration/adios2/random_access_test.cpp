// SPDX-License-Identifier: Apache-2.0
// All steps of a stream at once: where RandomAccess asks for it, and unasked for a stream that has ended.
#include <utility>
#include <vector>

#include "engine_fixture.h"

namespace forebay::engine_test {
namespace {

using adios2::Mode;
using adios2::StepStatus;

class EngineRandomAccess : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    out_ = make_io("out");
    auto always = out_.DefineVariable<int>("always", {4}, {0}, {4});
    auto even = out_.DefineVariable<double>("even");
    out_.DefineAttribute<std::string>("title", "numbers");
    writer_ = out_.Open("numbers", Mode::Write);
    for (int step = 0; step < 6; ++step) {
      const std::vector<int> data{step, step + 10, step + 20, step + 30};
      writer_.BeginStep();
      writer_.Put(always, data.data());
      if (step % 2 == 0) writer_.Put(even, step / 2.0);
      writer_.EndStep();
    }
  }
  void TearDown() override {
    if (writer_) writer_.Close();
  }

  adios2::IO out_;
  adios2::Engine writer_;
};

TEST_F(EngineRandomAccess, step_selection_works_on_a_running_and_on_a_finished_stream) {
  for (const bool finished : {false, true}) {
    if (finished) writer_.Close();
    adios2::IO in = make_io(finished ? "finished" : "running", {{"RandomAccess", "true"}});
    adios2::Engine reader = in.Open("numbers", Mode::ReadRandomAccess);
    EXPECT_EQ(reader.Steps(), 6U);
    auto always = in.InquireVariable<int>("always");
    auto even = in.InquireVariable<double>("even");
    ASSERT_TRUE(always && even);
    EXPECT_EQ(in.InquireAttribute<std::string>("title").Data().at(0), "numbers");
    always.SetStepSelection({4, 2});
    always.SetSelection({{1}, {2}});
    std::vector<int> read;
    reader.Get(always, read, Mode::Sync);
    EXPECT_EQ(read, (std::vector<int>{14, 24, 15, 25}));
    // The steps of a variable are counted among those that have it.
    even.SetStepSelection({0, 3});
    std::vector<double> values;
    reader.Get(even, values, Mode::Deferred);
    reader.PerformGets();
    EXPECT_EQ(values, (std::vector<double>{0, 1, 2}));
    even.SetStepSelection({3, 1});
    EXPECT_TRUE(throws<std::invalid_argument>([&] { reader.Get(even, values, Mode::Sync); }, "3 steps have it"));
    const auto blocks = reader.BlocksInfo(always, 5);
    ASSERT_EQ(blocks.size(), 1U);
    EXPECT_EQ(blocks[0].Step, 5U);
    EXPECT_EQ(blocks[0].Min, 5);
    EXPECT_EQ(blocks[0].Max, 35);
    EXPECT_TRUE(throws<std::logic_error>([&] { reader.BeginStep(); }, "RandomAccess"));
    reader.Close();
  }
}

TEST_F(EngineRandomAccess, variable_knows_its_steps_and_the_range_of_all_of_them) {
  adios2::IO in = make_io("in", {{"RandomAccess", "true"}});
  adios2::Engine reader = in.Open("numbers", Mode::ReadRandomAccess);
  auto always = in.InquireVariable<int>("always");
  auto even = in.InquireVariable<double>("even");
  EXPECT_EQ(always.Steps(), 6U);
  EXPECT_EQ(even.Steps(), 3U);
  EXPECT_EQ(always.MinMax(), std::make_pair(0, 35));
  EXPECT_EQ(even.MinMax(), std::make_pair(0.0, 2.0));
  EXPECT_EQ(in.AvailableVariables().at("even").at("AvailableStepsCount"), "3");
  EXPECT_EQ(reader.GetAbsoluteSteps(even), (std::vector<std::size_t>{0, 2, 4}));
  reader.Close();
}

TEST_F(EngineRandomAccess, blocks_of_all_steps_are_listed) {
  adios2::IO in = make_io("in", {{"RandomAccess", "true"}});
  adios2::Engine reader = in.Open("numbers", Mode::ReadRandomAccess);
  ASSERT_EQ(reader.Steps(), 6U);
  auto even = in.InquireVariable<double>("even");
  const auto blocks = reader.AllStepsBlocksInfo(even);
  ASSERT_EQ(blocks.size(), 3U);
  for (std::size_t step = 0; step < 3; ++step) EXPECT_EQ(blocks.at(step).at(0).Value, static_cast<double>(step));
  EXPECT_EQ(even.AllStepsBlocksInfo().size(), 3U);
  EXPECT_TRUE(reader.BlocksInfo(even, 3).empty());  // a step of the stream, but none of the variable's
  EXPECT_EQ(reader.OpenMode(), Mode::ReadRandomAccess);
  reader.Close();
}

TEST_F(EngineRandomAccess, selected_step_has_its_own_shape) {
  adios2::IO out = make_io("growing", {}, stream_ + "2");
  auto grid = out.DefineVariable<float>("grid", {1}, {0}, {1});
  adios2::Engine writer = out.Open("growing", Mode::Write);
  for (std::size_t size = 1; size <= 3; ++size) {
    const std::vector<float> data(size, static_cast<float>(size));
    writer.BeginStep();
    grid.SetShape({size});
    grid.SetSelection({{0}, {size}});
    writer.Put(grid, data.data());
    writer.EndStep();
  }
  writer.Close();
  adios2::IO in = make_io("in", {{"RandomAccess", "true"}}, stream_ + "2");
  adios2::Engine reader = in.Open("growing", Mode::ReadRandomAccess);
  auto shown = in.InquireVariable<float>("grid");
  for (std::size_t size = 3; size >= 1; --size) {
    shown.SetStepSelection({size - 1, 1});
    ASSERT_EQ(shown.Shape(), adios2::Dims{size});
    shown.SetSelection({{0}, shown.Shape()});
    std::vector<float> read;
    reader.Get(shown, read, Mode::Sync);
    EXPECT_EQ(read, std::vector<float>(size, static_cast<float>(size)));
  }
  reader.Close();
}

TEST_F(EngineRandomAccess, selection_objects_choose_steps) {
  adios2::IO in = make_io("in", {{"RandomAccess", "true"}});
  adios2::Engine reader = in.Open("numbers", Mode::ReadRandomAccess);
  auto always = in.InquireVariable<int>("always");
  std::vector<int> read(4);
  reader.Get(always, read.data(), adios2::Selection::Block(0).WithSteps(3, 1), Mode::Sync);
  EXPECT_EQ(read, (std::vector<int>{3, 13, 23, 33}));
  read.resize(2);
  reader.Get(always, read.data(), adios2::Selection::BoundingBox({2}, {1}).WithSteps(0, 2), Mode::Sync);
  EXPECT_EQ(read, (std::vector<int>{20, 21}));
  reader.Close();
}

class EngineFinishedStream : public EngineTest {
 protected:
  // `late` begins with step 1. Values are those of the first step, plus the step.
  void write(int first, int steps, Mode mode = Mode::Write) {
    adios_.RemoveIO("out");
    adios2::IO out = make_io("out");
    auto field = out.DefineVariable<int>("field", {3}, {0}, {3});
    auto late = out.DefineVariable<int>("late");
    adios2::Engine writer = out.Open("numbers", mode);
    for (int step = 0; step < steps; ++step) {
      const std::vector<int> data(3, first + step);
      writer.BeginStep();
      writer.Put(field, data.data());
      if (step > 0) writer.Put(late, first + step);
      writer.EndStep();
    }
    writer.Close();
  }
};

TEST_F(EngineFinishedStream, is_read_before_any_step_is_begun_as_restarts_do) {
  write(10, 4);
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("numbers", Mode::Read);
  auto field = in.InquireVariable<int>("field");
  ASSERT_TRUE(field);
  field.SetStepSelection({3, 1});
  std::vector<int> read;
  reader.Get(field, read, Mode::Sync);
  EXPECT_EQ(read, (std::vector<int>{13, 13, 13}));
  // Its steps are counted among those that have it: step 0 has not.
  auto late = in.InquireVariable<int>("late");
  ASSERT_TRUE(late);
  EXPECT_EQ(late.Steps(), 3U);
  late.SetStepSelection({0, 1});
  int value = 0;
  reader.Get(late, value, Mode::Sync);
  EXPECT_EQ(value, 11);
  reader.Close();
}

TEST_F(EngineFinishedStream, goes_on_step_by_step_with_selections_undone_and_handles_valid) {
  write(10, 3);
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("numbers", Mode::Read);
  auto field = in.InquireVariable<int>("field");
  auto late = in.InquireVariable<int>("late");  // not in step 0
  ASSERT_TRUE(field && late);
  field.SetStepSelection({1, 2});
  field.SetSelection({{1}, {1}});
  std::vector<int> read;
  reader.Get(field, read, Mode::Sync);
  EXPECT_EQ(read, (std::vector<int>{11, 12}));
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
    EXPECT_EQ(reader.CurrentStep(), static_cast<std::size_t>(step));
    reader.Get(field, read, Mode::Sync);
    EXPECT_EQ(read, (std::vector<int>(3, 10 + step)));
    int value = 0;
    EXPECT_EQ(static_cast<bool>(in.InquireVariable<int>("late")), step > 0);
    EXPECT_EQ(in.AvailableVariables().count("late"), step > 0 ? 1U : 0U);
    if (step == 0) {
      EXPECT_TRUE(throws<std::invalid_argument>([&] { reader.Get(late, value); }, "step 0 does not have it"));
    } else {
      reader.Get(late, value);
      EXPECT_EQ(value, 10 + step);
    }
    reader.EndStep();
  }
  EXPECT_EQ(reader.BeginStep(), StepStatus::EndOfStream);
  EXPECT_EQ(late.Name(), "late");
  reader.Close();
  EXPECT_FALSE(in.InquireVariable<int>("late"));
}

TEST_F(EngineFinishedStream, keeps_handles_of_a_variable_that_changes_its_type) {
  adios2::IO out = make_io("out");
  adios2::Engine writer = out.Open("numbers", Mode::Write);
  writer.BeginStep();
  writer.Put(out.DefineVariable<int>("changing"), 1);
  writer.EndStep();
  out.RemoveVariable("changing");
  writer.BeginStep();
  writer.Put(out.DefineVariable<double>("changing"), 2.5);
  writer.EndStep();
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("numbers", Mode::Read);
  auto before = in.InquireVariable<int>("changing");
  ASSERT_TRUE(before);
  for (int step = 0; step < 2; ++step) {
    ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
    EXPECT_EQ(before.Name(), "changing");
    EXPECT_EQ(static_cast<bool>(in.InquireVariable<double>("changing")), step == 1);
    reader.EndStep();
  }
  int value = 0;
  EXPECT_ANY_THROW(reader.Get(before, value));
  reader.Close();
  EXPECT_TRUE(in.AvailableVariables().empty());
}

TEST_F(EngineFinishedStream, that_is_replaced_since_it_was_opened_is_not_mixed) {
  write(10, 3);
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("numbers", Mode::Read);
  write(50, 3);
  EXPECT_TRUE(throws<std::runtime_error>([&] { reader.BeginStep(); }, "open it again"));
  reader.Close();
  reader = in.Open("numbers", Mode::Read);
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  reader.Close();
}

TEST_F(EngineFinishedStream, gives_the_steps_that_it_had_at_open) {
  write(10, 2);
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("numbers", Mode::Read);
  write(12, 2, Mode::Append);
  EXPECT_EQ(reader.BeginStep(), StepStatus::OK);
  reader.EndStep();
  EXPECT_EQ(reader.BeginStep(), StepStatus::OK);
  reader.EndStep();
  EXPECT_EQ(reader.BeginStep(), StepStatus::EndOfStream);
  reader.Close();
}

TEST_F(EngineFinishedStream, is_followed_where_something_says_how) {
  write(10, 3);
  for (const adios2::Params& parameters : std::vector<adios2::Params>{{{"RandomAccess", "false"}},
                                                                      {{"Consumer", "c"}},
                                                                      {{"Start", "latest"}},
                                                                      {{"StepDistributionMode", "RoundRobin"}},
                                                                      {{"AlwaysProvideLatestTimestep", "true"}}}) {
    adios_.RemoveIO("in");
    adios2::IO in = make_io("in", parameters);
    adios2::Engine reader = in.Open("numbers", Mode::Read);
    EXPECT_FALSE(in.InquireVariable<int>("field")) << parameters.begin()->first;
    EXPECT_EQ(reader.BeginStep(), StepStatus::OK);
    reader.EndStep();
    reader.Close();
  }
}

TEST_F(EngineFinishedStream, keeps_a_consumers_position) {
  write(10, 3);
  for (int first = 0; first < 3; ++first) {
    adios_.RemoveIO("in");
    adios2::IO in = make_io("in", {{"Consumer", "worker"}});
    adios2::Engine reader = in.Open("numbers", Mode::Read);
    ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
    EXPECT_EQ(reader.CurrentStep(), static_cast<std::size_t>(first));
    reader.EndStep();
    reader.Close();
  }
}

TEST_F(EngineFinishedStream, of_more_than_a_thousand_steps_is_read_step_by_step) {
  write(0, 1'001);
  adios2::IO in = make_io("in");
  ::testing::internal::CaptureStderr();
  adios2::Engine reader = in.Open("numbers", Mode::Read);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("1001 steps"), std::string::npos);
  EXPECT_FALSE(in.InquireVariable<int>("field"));
  EXPECT_EQ(reader.BeginStep(), StepStatus::OK);
  reader.Close();
}

}  // namespace
}  // namespace forebay::engine_test
