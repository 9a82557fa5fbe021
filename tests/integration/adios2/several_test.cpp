// SPDX-License-Identifier: Apache-2.0
// Several engines at once, in one IO and in threads; random access; parameters from the IO and from the environment.
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "engine_fixture.h"

namespace forebay::engine_test {
namespace {

using adios2::Mode;
using adios2::StepStatus;

class EngineSeveral : public EngineTest {};

TEST_F(EngineSeveral, streams_of_one_io_are_told_apart_by_the_parameter_at_open) {
  adios2::IO out = make_io("out");
  auto shared = out.DefineVariable<int>("shared");
  configure(out, stream_ + "1");
  adios2::Engine first = out.Open("first", Mode::Write);
  configure(out, stream_ + "2");
  adios2::Engine second = out.Open("second", Mode::Write);
  first.BeginStep();
  second.BeginStep();
  first.Put(shared, 1);
  second.Put(shared, 2);
  second.EndStep();
  first.EndStep();
  first.Close();
  second.Close();
  adios2::IO in = make_io("in");
  for (int i = 1; i <= 2; ++i) {
    configure(in, stream_ + std::to_string(i));
    adios2::Engine reader = in.Open("reader", Mode::Read);
    ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
    int value = 0;
    reader.Get("shared", value);
    EXPECT_EQ(value, i);
    reader.Close();
  }
}

TEST_F(EngineSeveral, two_readers_of_one_io_share_variables_of_one_name) {
  adios2::IO out = make_io("out");
  auto number = out.DefineVariable<int>("number");
  for (int i = 1; i <= 2; ++i) {
    configure(out, stream_ + std::to_string(i));
    adios2::Engine writer = out.Open("writer", Mode::Write);
    for (int step = 0; step < 2; ++step) {
      writer.BeginStep();
      writer.Put(number, 10 * i + step);
      writer.EndStep();
    }
    writer.Close();
  }
  adios2::IO in = make_io("in", {}, stream_ + "1");
  adios2::Engine first = in.Open("first", Mode::Read);
  configure(in, stream_ + "2");
  adios2::Engine second = in.Open("second", Mode::Read);
  for (int step = 0; step < 2; ++step) {
    ASSERT_EQ(first.BeginStep(), StepStatus::OK);
    ASSERT_EQ(second.BeginStep(), StepStatus::OK);
    int from_first = 0, from_second = 0;
    first.Get("number", from_first);
    second.Get("number", from_second);
    EXPECT_EQ(from_first, 10 + step);
    EXPECT_EQ(from_second, 20 + step);
    first.EndStep();
    second.EndStep();
  }
  first.Close();
  EXPECT_TRUE(in.InquireVariable<int>("number"));
  second.Close();
  EXPECT_FALSE(in.InquireVariable<int>("number"));
}

TEST_F(EngineSeveral, reader_does_not_take_over_a_variable_of_the_application) {
  adios2::IO io = make_io("both");
  auto mine = io.DefineVariable<int>("mine");
  adios2::Engine writer = io.Open("writer", Mode::Write);
  writer.BeginStep();
  writer.Put(mine, 1);
  writer.EndStep();
  adios2::Engine reader = io.Open("reader", Mode::Read);
  EXPECT_TRUE(throws<std::logic_error>([&] { reader.BeginStep(); }, "IO of its own"));
  EXPECT_TRUE(io.InquireVariable<int>("mine"));
  writer.Close();
  // The step is not lost: it comes when it can be shown.
  io.RemoveVariable("mine");
  ASSERT_EQ(reader.BeginStep(), StepStatus::OK);
  EXPECT_EQ(reader.CurrentStep(), 0U);
  int value = 0;
  reader.Get("mine", value);
  EXPECT_EQ(value, 1);
  reader.EndStep();
  reader.Close();
}

TEST_F(EngineSeveral, pairs_of_writer_and_reader_run_in_threads) {
  constexpr int pairs = 4, steps = 25;
  std::atomic<int> wrong = 0;
  const auto open = [&](adios2::ADIOS& adios, int pair) {
    adios2::IO io = adios.DeclareIO("io");
    configure(io, stream_ + std::to_string(pair));
    return io;
  };
  std::vector<std::thread> threads;
  for (int pair = 0; pair < pairs; ++pair) {
    threads.emplace_back([&, pair] {
      adios2::ADIOS adios;
      adios2::IO io = open(adios, pair);
      auto variable = io.DefineVariable<int>("data", {1000}, {0}, {1000});
      adios2::Engine writer = io.Open("data", Mode::Write);
      std::vector<int> data(1000);
      for (int step = 0; step < steps; ++step) {
        std::iota(data.begin(), data.end(), pair * 1000 + step);
        writer.BeginStep();
        writer.Put(variable, data.data());
        writer.EndStep();
      }
      writer.Close();
    });
    threads.emplace_back([&, pair] {
      adios2::ADIOS adios;
      adios2::IO io = open(adios, pair);
      adios2::Engine reader = io.Open("data", Mode::Read);
      std::vector<int> expected(1000), data;
      int step = 0;
      for (; reader.BeginStep() == StepStatus::OK; ++step) {
        std::iota(expected.begin(), expected.end(), pair * 1000 + step);
        reader.Get<int>("data", data, Mode::Deferred);
        reader.EndStep();
        if (data != expected) ++wrong;
      }
      if (step != steps) ++wrong;
      reader.Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

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

class EngineParameters : public EngineTest {
 protected:
  void TearDown() override {
    for (const char* variable : {"FOREBAY_STREAM", "FOREBAY_OPEN_TIMEOUT_SECS", "FOREBAY_APPEND_AFTER"})
      unsetenv(variable);
  }
};

TEST_F(EngineParameters, unknown_one_is_an_error_that_lists_the_known_ones) {
  adios2::IO io = make_io("io", {{"NoSuch", "x"}});
  EXPECT_TRUE(throws<std::invalid_argument>([&] { io.Open("x", Mode::Write); }, "NoSuch"));
  EXPECT_TRUE(throws<std::invalid_argument>([&] { io.Open("x", Mode::Write); }, "RandomAccess"));
}

TEST_F(EngineParameters, stream_comes_from_parameter_environment_or_plugin_name) {
  const auto write = [&](const std::string& name, const adios2::Params& parameters) {
    adios2::IO io = adios_.DeclareIO(name);
    io.SetEngine("Plugin");
    io.SetParameter("PluginLibrary", from_environment("FOREBAY_ADIOS2_LIBRARY"));
    for (const auto& [key, value] : parameters) io.SetParameter(key, value);
    adios2::Engine writer = io.Open("x", Mode::Write);
    writer.Put(io.DefineVariable<std::string>("name"), name);
    writer.Close();
  };
  const auto written_by = [&](const std::string& stream) {
    adios_.RemoveIO("in");
    adios2::IO io = make_io("in", {{"OpenTimeoutSecs", "0"}}, stream);
    adios2::Engine reader = io.Open("x", Mode::Read);
    EXPECT_EQ(reader.BeginStep(), StepStatus::OK);
    std::string name;
    reader.Get("name", name);
    reader.Close();
    return name;
  };
  EXPECT_TRUE(throws<std::invalid_argument>([&] { write("none", {{"PluginName", "forebay"}}); }, "FOREBAY_STREAM"));
  write("plugin name", {{"PluginName", stream_ + "1"}});
  EXPECT_EQ(written_by(stream_ + "1"), "plugin name");
  setenv("FOREBAY_STREAM", (stream_ + "2").c_str(), 1);
  write("environment", {{"PluginName", stream_ + "1"}});
  EXPECT_EQ(written_by(stream_ + "2"), "environment");
  write("parameter", {{"PluginName", stream_ + "1"}, {"Stream", "forebay://" + stream_ + "3"}});
  EXPECT_EQ(written_by(stream_ + "3"), "parameter");
  EXPECT_EQ(written_by(stream_ + "1"), "plugin name");
}

TEST_F(EngineParameters, open_of_a_stream_that_does_not_exist_times_out) {
  adios2::IO fixed = make_io("fixed", {{"OpenTimeoutSecs", "0.2"}});
  EXPECT_TRUE(throws<std::runtime_error>([&] { fixed.Open("x", Mode::Read); }, stream_));
  setenv("FOREBAY_OPEN_TIMEOUT_SECS", "0.2", 1);
  adios2::IO io = make_io("environment");
  EXPECT_TRUE(throws<std::runtime_error>([&] { io.Open("x", Mode::Read); }, stream_));
}

}  // namespace
}  // namespace forebay::engine_test
