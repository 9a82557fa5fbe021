// SPDX-License-Identifier: Apache-2.0
// bench_adios2: a writer or reader of steps through ADIOS2; which engine moves them is said on the command line, so
// that Forebay's plugin, BP5 and SST run the same program.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <adios2.h>

#include "timeline.h"

namespace {

struct Options {
  std::string engine;
  std::string name;
  std::vector<std::string> parameters;
  std::size_t variables = 1;
  std::size_t bytes = 0;
  std::uint64_t steps = 0;
  std::int64_t pace_us = 0;
  std::int64_t pause_us = 0;
  bool without_data = false;
  bool until_lost = false;
};

adios2::IO declare_io(adios2::ADIOS& adios, const Options& options) {
  adios2::IO io = adios.DeclareIO("bench");
  io.SetEngine(options.engine);
  for (const std::string& parameter : options.parameters) {
    const std::size_t equals = parameter.find('=');
    if (equals == std::string::npos) bench::give_up("bench_adios2: --parameter takes NAME=VALUE");
    io.SetParameter(parameter.substr(0, equals), parameter.substr(equals + 1));
  }
  return io;
}

void write(const Options& options) {
  bench::StepData data(options.variables, options.bytes);
  bench::Timeline timeline(options.engine);
  timeline.reserve(options.steps);
  adios2::ADIOS adios;
  adios2::IO io = declare_io(adios, options);
  std::vector<adios2::Variable<double>> variables;
  for (std::size_t i = 0; i < data.variables(); ++i)
    variables.push_back(io.DefineVariable<double>(data.name(i), {data.elements()}, {0}, {data.elements()}, true));
  const std::int64_t opening = bench::now_ns();
  adios2::Engine engine = io.Open(options.name, adios2::Mode::Write);
  timeline.set("open_seconds", static_cast<double>(bench::now_ns() - opening) * 1e-9);
  timeline.ready();
  std::int64_t due = bench::now_ns();
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    data.stamp(step);
    if (options.pace_us > 0) bench::wait_until_ns(due);
    due = std::max(due + options.pace_us * 1000, bench::now_ns());
    bench::Moments moments{};
    moments[0] = bench::now_ns();
    engine.BeginStep();
    moments[1] = bench::now_ns();
    for (std::size_t i = 0; i < data.variables(); ++i) engine.Put(variables[i], data.variable(i));
    moments[2] = bench::now_ns();
    engine.EndStep();
    moments[3] = bench::now_ns();
    timeline.add(moments);
  }
  engine.Close();
  timeline.set("closed_ns", static_cast<double>(bench::now_ns()));
  timeline.print();
}

// Follows a writer that will be killed: tells when it was noticed, in whatever way the engine says so.
void read_until_lost(const Options& options) {
  bench::Timeline timeline(options.engine);
  adios2::ADIOS adios;
  adios2::IO io = declare_io(adios, options);
  adios2::Engine engine = io.Open(options.name, adios2::Mode::Read);
  timeline.ready();
  try {
    while (engine.BeginStep(adios2::StepMode::Read, -1.0F) == adios2::StepStatus::OK) engine.EndStep();
  } catch (const std::exception&) {
  }
  timeline.set("noticed_ns", static_cast<double>(bench::now_ns()));
  timeline.print();
  // Without destructors: SST's crashes once its writer has died.
  std::cout.flush();
  std::_Exit(0);
}

void read(const Options& options) {
  bench::StepData data(options.variables, options.bytes);
  bench::Timeline timeline(options.engine);
  timeline.reserve(options.steps);
  adios2::ADIOS adios;
  adios2::IO io = declare_io(adios, options);
  const std::int64_t opening = bench::now_ns();
  adios2::Engine engine = io.Open(options.name, adios2::Mode::Read);
  timeline.set("open_seconds", static_cast<double>(bench::now_ns() - opening) * 1e-9);
  timeline.ready();
  while (true) {
    bench::Moments moments{};
    moments[0] = bench::now_ns();
    const adios2::StepStatus status = engine.BeginStep(adios2::StepMode::Read, -1.0F);
    moments[1] = bench::now_ns();
    if (status == adios2::StepStatus::EndOfStream) break;
    if (status != adios2::StepStatus::OK) bench::give_up("bench_adios2: BeginStep failed");
    const std::uint64_t step = engine.CurrentStep();
    for (std::size_t i = 0; i < data.variables() && !options.without_data; ++i) {
      const auto variable = io.InquireVariable<double>(data.name(i));
      if (!variable) bench::give_up("bench_adios2: a variable is missing");
      engine.Get(variable, data.variable(i));
    }
    engine.PerformGets();
    moments[2] = bench::now_ns();
    if (!options.without_data) data.check(step);
    engine.EndStep();
    moments[3] = bench::now_ns();
    timeline.add(moments);
    if (options.pause_us > 0) bench::wait_until_ns(bench::now_ns() + options.pause_us * 1000);
  }
  engine.Close();
  timeline.set("closed_ns", static_cast<double>(bench::now_ns()));
  timeline.print();
}

// Opens all steps at once, then takes single ones: where BP5 has Mode::ReadRandomAccess, Forebay has a parameter.
void read_random(const Options& options) {
  bench::StepData data(1, options.bytes);
  bench::Timeline timeline(options.engine);
  adios2::ADIOS adios;
  adios2::IO io = declare_io(adios, options);
  timeline.ready();
  const std::int64_t opening = bench::now_ns();
  const bool has_mode = io.EngineType() != "Plugin";
  adios2::Engine engine = io.Open(options.name, has_mode ? adios2::Mode::ReadRandomAccess : adios2::Mode::Read);
  auto variable = io.InquireVariable<double>(data.name(0));
  const std::size_t available = engine.Steps();
  timeline.set("open_seconds", static_cast<double>(bench::now_ns() - opening) * 1e-9);
  timeline.set("available", static_cast<double>(available));
  std::uint64_t wanted = 7;
  for (std::uint64_t i = 0; i < options.steps; ++i) {
    wanted = (wanted * 6'364'136'223'846'793'005ULL + 1) % available;
    const std::int64_t begin = bench::now_ns();
    variable.SetStepSelection({wanted, 1});
    engine.Get(variable, data.variable(0), adios2::Mode::Sync);
    const std::int64_t held = bench::now_ns();
    data.check(wanted);
    timeline.add({begin, begin, held, held});
  }
  engine.Close();
  timeline.print();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("bench_adios2: writes and reads steps through ADIOS2");
  app.require_subcommand(1);
  CLI::App* writing = app.add_subcommand("write", "write steps");
  writing->add_option("--pace-us", options.pace_us, "from the begin of one step to the next");
  writing->add_option("--variables", options.variables);
  CLI::App* reading = app.add_subcommand("read", "follow until the end of the stream");
  reading->add_option("--variables", options.variables);
  reading->add_option("--pause-us", options.pause_us, "after each step");
  reading->add_flag("--until-lost", options.until_lost, "until the writer is killed; no data is read");
  reading->add_flag("--without-data", options.without_data, "take the steps, but not their data");
  CLI::App* random = app.add_subcommand("read-random", "open all steps, then read some of them");
  for (CLI::App* command : {writing, reading, random}) {
    command->add_option("--engine", options.engine)->required();
    command->add_option("--name", options.name, "what Open is given")->required();
    command->add_option("--parameter", options.parameters, "NAME=VALUE, again and again");
    command->add_option("--bytes", options.bytes, "of one variable")->required();
  }
  for (CLI::App* command : {writing, random}) command->add_option("--steps", options.steps)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    if (writing->parsed()) write(options);
    if (reading->parsed() && options.until_lost) read_until_lost(options);
    if (reading->parsed() && !options.until_lost) read(options);
    if (random->parsed()) read_random(options);
  } catch (const std::exception& error) {
    bench::give_up(std::string("bench_adios2: ") + error.what());
  }
  return 0;
}
