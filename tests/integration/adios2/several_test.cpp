// SPDX-License-Identifier: Apache-2.0
// Several engines at once, in one IO and in threads; parameters from the IO and from the environment.
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
  adios2::IO io = make_io("both", {{"OwnOutput", "true"}});
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

TEST_F(EngineSeveral, two_writers_of_one_process_on_one_stream_are_told_so) {
  adios2::IO first = make_io("first"), second = make_io("second");
  adios2::Engine writer = first.Open("first", Mode::Write);
  EXPECT_TRUE(throws<std::invalid_argument>([&] { second.Open("second", Mode::Write); },
                                            "is being written by another engine of this process"));
  writer.Close();
  writer = second.Open("second", Mode::Write);
  writer.Close();
}

TEST_F(EngineSeveral, io_does_not_read_its_own_output_by_mistake) {
  adios2::IO io = make_io("both");
  adios2::Engine writer = io.Open("out", Mode::Write);
  EXPECT_TRUE(throws<std::invalid_argument>([&] { io.Open("in", Mode::Read); }, "which it writes itself"));
  io.SetParameter("OwnOutput", "true");
  adios2::Engine reader = io.Open("in", Mode::Read);
  reader.Close();
  // Another IO may, as the same program may use both ends.
  adios2::IO other = make_io("other");
  reader = other.Open("in", Mode::Read);
  reader.Close();
  writer.Close();
}

class EngineParameters : public EngineTest {
 protected:
  void TearDown() override {
    for (const char* variable : {"FOREBAY_STREAM", "FOREBAY_OPEN_TIMEOUT_SECS", "FOREBAY_APPEND_AFTER"})
      unsetenv(variable);
  }
};

TEST_F(EngineParameters, unknown_ones_are_an_error_that_names_all_of_them) {
  adios2::IO io = make_io("io", {{"NoSuch", "x"}, {"RandomAcess", "true"}});
  EXPECT_TRUE(throws<std::invalid_argument>([&] { io.Open("x", Mode::Write); }, "NoSuch"));
  EXPECT_TRUE(throws<std::invalid_argument>([&] { io.Open("x", Mode::Write); }, "RandomAccess"));
}

TEST_F(EngineParameters, those_of_other_engines_do_not_keep_a_program_from_running) {
  // As XML files for SST, BP4 and BP5 set them.
  const adios2::Params foreign{{"DataTransport", "WAN"},       {"MarshalMethod", "BP5"},      {"OpenTimeOutSecs", "10"},
                               {"NumAggregators", "2"},        {"BurstBufferPath", "/tmp/x"}, {"StreamReader", "On"},
                               {"QueueFullPolicy", "Discard"}, {"queuelimit", "2"},           {"Profile", "Off"}};
  adios2::IO out = make_io("out", foreign);
  auto number = out.DefineVariable<int>("number");
  adios2::Engine writer = out.Open("x", Mode::Write);
  for (int step = 0; step < 5; ++step) {
    writer.BeginStep();
    writer.Put(number, step);
    writer.EndStep();
  }
  writer.Close();
  // QueueLimit with Discard is the retention of the stream that this writer made.
  adios2::IO in = make_io("in", foreign);
  adios2::Engine reader = in.Open("x", Mode::Read);
  std::vector<int> seen;
  for (int value = 0; reader.BeginStep() == StepStatus::OK; reader.EndStep()) {
    reader.Get("number", value);
    seen.push_back(value);
  }
  reader.Close();
  EXPECT_EQ(seen, (std::vector<int>{3, 4}));
}

TEST_F(EngineParameters, queue_limit_leaves_the_retention_of_a_stream_that_goes_on) {
  adios2::IO out = make_io("out", {{"Retention", "last:4"}});
  auto number = out.DefineVariable<int>("number");
  const auto write = [&](adios2::IO io, Mode mode) {
    adios2::Engine writer = io.Open("x", mode);
    for (int step = 0; step < 5; ++step) {
      writer.BeginStep();
      writer.Put(number, step);
      writer.EndStep();
    }
    writer.Close();
  };
  write(out, Mode::Write);
  out.ClearParameters();
  configure(out, stream_);
  out.SetParameters("QueueLimit=1,QueueFullPolicy=Discard");
  write(out, Mode::Append);
  adios2::IO in = make_io("in", {{"RandomAccess", "true"}});
  adios2::Engine reader = in.Open("x", Mode::Read);
  EXPECT_EQ(reader.Steps(), 4U);
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
