// SPDX-License-Identifier: Apache-2.0
// Steps: what each status means, what may change between them, when the data of a Put is taken, wrong order of calls.
#include <chrono>
#include <future>
#include <numeric>
#include <vector>

#include "engine_fixture.h"

namespace forebay::engine_test {
namespace {

using adios2::Mode;
using adios2::StepMode;
using adios2::StepStatus;

class EngineSteps : public EngineTest {
 protected:
  // Writes steps whose single value is their number, beginning with `first`.
  void write_steps(adios2::Engine writer, adios2::Variable<int> variable, int first, int count) {
    for (int step = first; step < first + count; ++step) {
      writer.BeginStep();
      writer.Put(variable, step);
      writer.EndStep();
    }
  }

  std::vector<int> read_all(adios2::IO io) {
    adios2::Engine reader = io.Open("steps", Mode::Read);
    std::vector<int> values;
    while (reader.BeginStep() == StepStatus::OK) {
      values.push_back(0);
      reader.Get("step", values.back());
      reader.EndStep();
    }
    reader.Close();
    return values;
  }
};

TEST_F(EngineSteps, polling_a_stream_without_a_new_step_is_not_ready) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("step");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  EXPECT_EQ(reader.BeginStep(StepMode::Read, 0.0F), StepStatus::NotReady);
  EXPECT_EQ(reader.BeginStep(StepMode::Read, 0.05F), StepStatus::NotReady);
  write_steps(writer, variable, 0, 1);
  ASSERT_EQ(reader.BeginStep(StepMode::Read, 30.0F), StepStatus::OK);
  EXPECT_EQ(reader.CurrentStep(), 0U);
  reader.EndStep();
  EXPECT_EQ(reader.BeginStep(StepMode::Read, 0.0F), StepStatus::NotReady);
  write_steps(writer, variable, 1, 1);
  // EndStep has returned, so polling finds the step at once.
  ASSERT_EQ(reader.BeginStep(StepMode::Read, 0.0F), StepStatus::OK);
  EXPECT_EQ(reader.CurrentStep(), 1U);
  reader.EndStep();
  writer.Close();
  EXPECT_EQ(reader.BeginStep(StepMode::Read, 30.0F), StepStatus::EndOfStream);
  EXPECT_EQ(reader.BeginStep(), StepStatus::EndOfStream);
  reader.Close();
}

TEST_F(EngineSteps, waiting_reader_gets_the_step_when_it_is_written) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("step");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  auto reading = std::async(std::launch::async, [&] {
    adios2::ADIOS adios;
    adios2::IO in = adios.DeclareIO("in");
    configure(in, stream_);
    return read_all(in);
  });
  write_steps(writer, variable, 0, 20);
  writer.Close();
  std::vector<int> expected(20);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(reading.get(), expected);
}

TEST_F(EngineSteps, writer_without_close_ends_the_stream_with_other_error) {
  {
    adios2::ADIOS adios;
    adios2::IO out = adios.DeclareIO("out");
    configure(out, stream_);
    out.SetParameter("GraceSecs", "0");
    auto variable = out.DefineVariable<int>("step");
    adios2::Engine writer = out.Open("steps", Mode::Write);
    write_steps(writer, variable, 0, 2);
    writer.BeginStep();
    writer.Put(variable, 99);
  }
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  for (int step = 0; step < 2; ++step) {
    ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
    int value = -1;
    reader.Get("step", value);
    EXPECT_EQ(value, step);
    reader.EndStep();
  }
  EXPECT_EQ(reader.BeginStep(StepMode::Read, 30.0F), StepStatus::OtherError);
  reader.Close();
}

TEST_F(EngineSteps, variables_come_go_and_change_shape_and_type) {
  adios2::IO out = make_io("out");
  auto growing = out.DefineVariable<int>("growing", {1}, {0}, {1});
  adios2::Engine writer = out.Open("steps", Mode::Write);
  std::vector<int> data(4, 5);
  for (std::size_t step = 0; step < 4; ++step) {
    writer.BeginStep();
    growing.SetShape({step + 1});
    growing.SetSelection({{0}, {step + 1}});
    writer.Put(growing, data.data());
    if (step == 1) {
      auto late = out.DefineVariable<double>("late", {2}, {0}, {2});
      const std::vector<double> late_data{1, 2};
      writer.Put(late, late_data.data(), Mode::Sync);
      out.RemoveVariable("late");
    }
    if (step == 3) writer.Put(out.DefineVariable<float>("late"), 2.5F);
    writer.EndStep();
  }
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  for (std::size_t step = 0; step < 4; ++step) {
    ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
    EXPECT_EQ(in.InquireVariable<int>("growing").Shape(), adios2::Dims{step + 1});
    EXPECT_EQ(static_cast<bool>(in.InquireVariable<double>("late")), step == 1);
    EXPECT_EQ(static_cast<bool>(in.InquireVariable<float>("late")), step == 3);
    std::vector<int> read;
    reader.Get(in.InquireVariable<int>("growing"), read, Mode::Sync);
    EXPECT_EQ(read, std::vector<int>(step + 1, 5));
    reader.EndStep();
  }
  reader.Close();
  EXPECT_FALSE(in.InquireVariable<int>("growing"));
}

TEST_F(EngineSteps, data_is_taken_at_the_put_in_both_modes) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("data", {}, {}, {3});
  adios2::Engine writer = out.Open("steps", Mode::Write);
  std::vector<int> data{1, 1, 1};
  writer.BeginStep();
  writer.Put(variable, data.data(), Mode::Sync);
  data.assign(3, 2);
  writer.Put(variable, data.data(), Mode::Deferred);
  data.assign(3, 3);
  writer.PerformPuts();
  writer.Put(variable, data.data(), Mode::Deferred);
  data.assign(3, 4);
  writer.EndStep();
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  auto blocks = in.InquireVariable<int>("data");
  for (std::size_t block = 0; block < 3; ++block) {
    blocks.SetBlockSelection(block);
    std::vector<int> read(3);
    reader.Get(blocks, read.data(), Mode::Sync);
    EXPECT_EQ(read, std::vector<int>(3, static_cast<int>(block) + 1));
  }
  reader.Close();
}

TEST_F(EngineSteps, shape_may_grow_within_a_step) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("data", {2, 1}, {0, 0}, {2, 1});
  adios2::Engine writer = out.Open("steps", Mode::Write);
  writer.BeginStep();
  for (std::size_t block = 0; block < 3; ++block) {
    variable.SetShape({2, block + 1});
    variable.SetSelection({{0, block}, {2, 1}});
    const std::vector<int> data(2, static_cast<int>(block));
    writer.Put(variable, data.data(), block % 2 == 0 ? Mode::Sync : Mode::Deferred);
    writer.PerformPuts();
  }
  writer.EndStep();
  writer.BeginStep();
  writer.Put(variable, std::vector<int>(2).data(), Mode::Sync);
  variable.SetShape({2, 2});
  variable.SetSelection({{0, 0}, {2, 1}});
  EXPECT_TRUE(throws<std::invalid_argument>([&] { writer.Put(variable, std::vector<int>(2).data()); }, "grow"));
  writer.EndStep();
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  EXPECT_EQ(in.InquireVariable<int>("data").Shape(), (adios2::Dims{2, 3}));
  std::vector<int> read;
  reader.Get<int>("data", read, Mode::Sync);
  EXPECT_EQ(read, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  reader.Close();
}

TEST_F(EngineSteps, puts_without_steps_become_one_step) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("data", {3}, {0}, {3});
  out.DefineAttribute<int>("answer", 42);
  const std::vector<int> data{7, 8, 9};
  adios2::Engine writer = out.Open("steps", Mode::Write);
  writer.Put(variable, data.data());
  EXPECT_TRUE(throws<std::logic_error>([&] { writer.BeginStep(); }, "Put without BeginStep"));
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  std::vector<int> read;
  reader.Get<int>("data", read, Mode::Sync);
  EXPECT_EQ(read, data);
  EXPECT_EQ(in.InquireAttribute<int>("answer").Data().at(0), 42);
  reader.EndStep();
  EXPECT_EQ(reader.BeginStep(), StepStatus::EndOfStream);
  reader.Close();
}

TEST_F(EngineSteps, close_publishes_an_open_step_unless_the_program_is_failing) {
  adios2::IO out = make_io("out", {{"GraceSecs", "0"}});
  auto variable = out.DefineVariable<int>("step");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  write_steps(writer, variable, 0, 1);
  writer.BeginStep();
  writer.Put(variable, 1);
  writer.Close();
  adios2::IO in = make_io("in");
  EXPECT_EQ(read_all(in), (std::vector<int>{0, 1}));

  struct Closing {
    adios2::Engine& engine;
    ~Closing() { engine.Close(); }
  };
  try {
    writer = out.Open("steps", Mode::Write);
    const Closing closing{writer};
    write_steps(writer, variable, 0, 1);
    writer.BeginStep();
    writer.Put(variable, 99);
    throw std::runtime_error("the simulation diverged");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(read_all(in), std::vector<int>{0});
}

TEST_F(EngineSteps, calls_in_the_wrong_order_are_logic_errors) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("step");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  EXPECT_TRUE(throws<std::logic_error>([&] { writer.EndStep(); }, "without BeginStep"));
  EXPECT_TRUE(throws<std::invalid_argument>([&] { writer.BeginStep(StepMode::Read); }, "open for writing"));
  writer.BeginStep();
  EXPECT_TRUE(throws<std::logic_error>([&] { writer.BeginStep(); }, "second time"));
  writer.Put(variable, 0);
  writer.EndStep();
  EXPECT_TRUE(throws<std::logic_error>([&] { writer.Put(variable, 1); }, "between BeginStep and EndStep"));
  EXPECT_TRUE(throws<std::logic_error>([&] { writer.EndStep(); }, "without BeginStep"));
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  EXPECT_TRUE(throws<std::logic_error>([&] { reader.EndStep(); }, "without a successful BeginStep"));
  EXPECT_TRUE(throws<std::invalid_argument>([&] { reader.BeginStep(StepMode::Append); }, "open for reading"));
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  EXPECT_TRUE(throws<std::logic_error>([&] { reader.BeginStep(); }, "second time"));
  reader.EndStep();
  int value = 0;
  EXPECT_TRUE(throws<std::logic_error>([&] { reader.Get("step", value); }, "RandomAccess=true"));
  EXPECT_TRUE(throws<std::logic_error>([&] { reader.BlocksInfo(in.InquireVariable<int>("step"), 0); }, "BlocksInfo"));
  reader.Close();
  writer.Close();
}

TEST_F(EngineSteps, what_the_interface_cannot_do_is_refused_with_a_reason) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<double>("data", {4}, {0}, {4});
  adios2::Engine writer = out.Open("steps", Mode::Write);
  writer.BeginStep();
  EXPECT_TRUE(throws<std::invalid_argument>([&] { writer.Put(variable); }, "Span"));
  EXPECT_TRUE(throws<std::invalid_argument>([&] { writer.Put(variable, true, 1.0); }, "Span"));
  const auto definition = out.DefineStruct("particle", 8);
  auto particles = out.DefineStructVariable("particles", definition, {4}, {0}, {4});
  const double data[4] = {};
  EXPECT_TRUE(throws<std::invalid_argument>([&] { writer.Put(particles, data, Mode::Sync); }, "Struct"));
  variable.AddOperation("null");
  EXPECT_TRUE(throws<std::invalid_argument>([&] { writer.Put(variable, data); }, "<operation type=\"null\"/>"));
  EXPECT_TRUE(throws<std::invalid_argument>([&] { writer.Put(variable, data); }, "Operators=ignore"));
  writer.EndStep();
  writer.Close();
}

TEST_F(EngineSteps, operators_are_ignored_where_the_parameter_says_so_and_elements_stay_as_they_are) {
  adios2::IO out = make_io("out", {{"Operators", "Ignore"}});
  auto variable = out.DefineVariable<double>("data", {4}, {0}, {4});
  variable.AddOperation("null");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  const double data[4] = {1, 2, 3, 4};
  ::testing::internal::CaptureStderr();
  for (int step = 0; step < 2; ++step) {
    writer.BeginStep();
    writer.Put(variable, data);
    writer.EndStep();
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("operators of variables are ignored (Operators=ignore), first null of data"), std::string::npos)
      << told;
  EXPECT_EQ(told.find("are ignored"), told.rfind("are ignored")) << "told once: " << told;
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  std::vector<double> read(4);
  reader.Get("data", read.data());
  reader.EndStep();
  EXPECT_EQ(read, std::vector<double>(data, data + 4));
  reader.Close();
}

TEST_F(EngineSteps, latest_step_skips_those_before_it) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("step");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  adios2::IO in = make_io("in", {{"AlwaysProvideLatestTimestep", "True"}});
  adios2::Engine reader = in.Open("steps", Mode::Read);
  write_steps(writer, variable, 0, 5);
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  EXPECT_EQ(reader.CurrentStep(), 4U);
  reader.EndStep();
  EXPECT_EQ(reader.BeginStep(StepMode::Read, 0.0F), StepStatus::NotReady);
  writer.Close();
  EXPECT_EQ(reader.BeginStep(), StepStatus::EndOfStream);
  reader.Close();
}

TEST_F(EngineSteps, append_goes_on_after_the_last_step_or_an_earlier_one) {
  const auto append = [&](int first, int count, const adios2::Params& parameters, Mode mode = Mode::Append) {
    adios_.RemoveIO("out");
    adios2::IO out = make_io("out", parameters);
    auto variable = out.DefineVariable<int>("step");
    adios2::Engine writer = out.Open("steps", mode);
    EXPECT_EQ(writer.CurrentStep(), static_cast<std::size_t>(first % 100));
    write_steps(writer, variable, first, count);
    writer.Close();
  };
  const auto all = [&] {
    adios_.RemoveIO("in");
    return read_all(make_io("in"));
  };
  append(0, 4, {});
  append(4, 2, {});
  EXPECT_EQ(all(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  append(103, 1, {{"AppendAfterSteps", "3"}});
  EXPECT_EQ(all(), (std::vector<int>{0, 1, 2, 103}));
  append(203, 2, {{"AppendAfterSteps", "-2"}});
  EXPECT_EQ(all(), (std::vector<int>{0, 1, 2, 203, 204}));
  append(205, 1, {{"AppendAfterSteps", "100"}});
  EXPECT_EQ(all(), (std::vector<int>{0, 1, 2, 203, 204, 205}));
  append(302, 1, {{"AppendAfter", "1"}}, Mode::Write);
  EXPECT_EQ(all(), (std::vector<int>{0, 1, 302}));
  append(400, 1, {{"AppendAfterSteps", "0"}});
  EXPECT_EQ(all(), std::vector<int>{400});
  append(500, 1, {}, Mode::Write);
  EXPECT_EQ(all(), std::vector<int>{500});
}

TEST_F(EngineSteps, attributes_change_accumulate_and_vanish) {
  adios2::IO out = make_io("out");
  out.DefineAttribute<int>("number", 0, "", "/", true);
  out.DefineAttribute<std::string>("removed", "soon");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  for (int step = 0; step < 3; ++step) {
    writer.BeginStep();
    out.DefineAttribute<int>("number", step * 10, "", "/", true);
    out.DefineAttribute<double>("of step " + std::to_string(step), step);
    if (step == 1) {
      out.RemoveAttribute("removed");
      out.DefineAttribute<float>("removed", 1.5F);
    }
    if (step == 2) out.RemoveAttribute("removed");
    writer.EndStep();
  }
  writer.Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
    EXPECT_EQ(in.InquireAttribute<int>("number").Data().at(0), step * 10);
    for (int other = 0; other < 3; ++other) {
      EXPECT_EQ(static_cast<bool>(in.InquireAttribute<double>("of step " + std::to_string(other))), other <= step);
    }
    EXPECT_EQ(static_cast<bool>(in.InquireAttribute<std::string>("removed")), step == 0);
    EXPECT_EQ(static_cast<bool>(in.InquireAttribute<float>("removed")), step == 1);
    reader.EndStep();
  }
  reader.Close();
}

TEST_F(EngineSteps, attributes_alone_make_a_step) {
  adios2::IO out = make_io("out");
  out.DefineAttribute<int>("answer", 42);
  out.Open("steps", Mode::Write).Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  EXPECT_EQ(in.InquireAttribute<int>("answer").Data().at(0), 42);
  reader.Close();
}

TEST_F(EngineSteps, stream_without_steps_ends_at_once) {
  adios2::IO out = make_io("out");
  out.Open("steps", Mode::Write).Close();
  adios2::IO in = make_io("in");
  adios2::Engine reader = in.Open("steps", Mode::Read);
  EXPECT_EQ(reader.BeginStep(), StepStatus::EndOfStream);
  reader.Close();
}

TEST_F(EngineSteps, consumer_goes_on_where_it_ended_a_step) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("step");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  write_steps(writer, variable, 0, 4);
  writer.Close();
  const auto first_of = [&](bool end) {
    adios_.RemoveIO("in");
    adios2::IO in = make_io("in", {{"Consumer", "render"}});
    adios2::Engine reader = in.Open("steps", Mode::Read);
    EXPECT_EQ(reader.BeginStep(), StepStatus::OK);
    const std::size_t step = reader.CurrentStep();
    if (end) reader.EndStep();
    reader.Close();
    return step;
  };
  EXPECT_EQ(first_of(true), 0U);
  EXPECT_EQ(first_of(false), 1U);
  EXPECT_EQ(first_of(true), 1U);
  EXPECT_EQ(first_of(true), 2U);
}

TEST_F(EngineSteps, start_follow_and_one_step_choose_what_is_read) {
  adios2::IO out = make_io("out");
  auto variable = out.DefineVariable<int>("step");
  adios2::Engine writer = out.Open("steps", Mode::Write);
  write_steps(writer, variable, 0, 6);
  const auto read = [&](const adios2::Params& parameters, const std::string& stream = {}) {
    adios_.RemoveIO("in");
    return read_all(make_io("in", parameters, stream));
  };
  EXPECT_EQ(read({{"Follow", "false"}}), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read({{"Follow", "false"}, {"Start", "4"}}), (std::vector<int>{4, 5}));
  EXPECT_EQ(read({{"Follow", "false"}, {"Start", "latest"}}), std::vector<int>{5});
  EXPECT_EQ(read({{"Follow", "no"}, {"Start", "next"}}), std::vector<int>{});
  EXPECT_EQ(read({}, stream_ + "@3"), std::vector<int>{3});
  EXPECT_TRUE(throws<std::runtime_error>([&] { read({}, stream_ + "@77"); }, "77"));
  EXPECT_TRUE(throws<std::invalid_argument>([&] { read({{"Follow", "off"}, {"Consumer", "x"}}); }, "Consumer"));
  EXPECT_TRUE(throws<std::invalid_argument>(
      [&] {
        adios_.RemoveIO("one");
        make_io("one", {}, stream_ + "@3").Open("one", Mode::Write);
      },
      "names one step"));
  writer.Close();
  EXPECT_EQ(read({{"Start", "5"}}), std::vector<int>{5});
}

}  // namespace
}  // namespace forebay::engine_test
