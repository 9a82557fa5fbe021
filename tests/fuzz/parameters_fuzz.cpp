// SPDX-License-Identifier: Apache-2.0
// What people set in an ADIOS2 IO and in the environment: a line each, NAME=VALUE. Refused with an error that names
// what is wrong, or settings that hold to their limits; an environment variable means what its parameter does.
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "engines/adios2/parameters.h"
#include "tests/fuzz/input.h"

namespace forebay::fuzz {
namespace {

using engine::Settings;
using Parameters = std::map<std::string, std::string>;

/// Name and environment variable of each parameter, from the table of the docs.
std::map<std::string, std::string> variables_by_name() {
  std::map<std::string, std::string> variables;
  const std::string table = engine::parameter_table();
  for (std::size_t at = table.find("\n| `"); at != std::string::npos; at = table.find("\n| `", at + 1)) {
    const std::size_t name = at + 4;
    const std::size_t end = std::min(table.find('\n', at + 1), table.size());
    const std::size_t variable = table.rfind("| `", end) + 3;
    variables[table.substr(name, table.find('`', name) - name)] =
        table.substr(variable, table.find('`', variable) - variable);
  }
  require(variables.size() > 20 && variables.at("OpenTimeoutSecs") == "FOREBAY_OPEN_TIMEOUT_SECS");
  return variables;
}

/// Everything that can be set, as text to compare.
std::string text_of(const Settings& settings) {
  const auto number = [](const auto& value) { return value ? std::to_string(*value) : std::string("-"); };
  const WriterOptions& w = settings.writer;
  const ReaderOptions& r = settings.reader;
  std::string text = settings.stream.value_or("-") + "\n" + settings.group.value_or("-") + "\n" + r.consumer + "\n";
  for (const std::string& entry :
       {number(settings.rank), number(settings.ranks), number(settings.writer.append_after),
        number(settings.append_after_steps), w.retention ? to_string(*w.retention) : std::string("-"),
        settings.retention_if_new ? to_string(*settings.retention_if_new) : std::string("-")})
    text += entry + " ";
  return text + fmt::format("{} {} {} | {} {} {} {} {} {} {} {} {} {} {} | {} {} {} {} {} {} {} {} {}",
                            static_cast<int>(settings.access), settings.variable_facts, settings.attributes_each_step,
                            static_cast<int>(w.when_full), w.block_timeout_ms, static_cast<int>(w.durability), w.force,
                            w.rendezvous_readers, w.open_timeout_ms, w.grace_ms, w.reconnect_timeout_ms, w.statistics,
                            w.checksums, w.distribution, static_cast<int>(r.start.kind), r.start.step,
                            static_cast<int>(r.min_watermark), r.latest_only, static_cast<int>(r.distribution),
                            r.follow, r.open_timeout_ms, r.reconnect_timeout_ms, static_cast<int>(r.verify));
}

/// What came of reading: the settings, or why not.
struct Outcome {
  bool valid = false;
  Settings settings;
  std::string text;
};
Outcome outcome_of(const Parameters& parameters, const Parameters& environment) {
  Outcome outcome;
  try {
    outcome.settings = engine::read_settings(parameters, [&](const char* variable) {
      const auto found = environment.find(variable);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
    outcome.valid = true;
    outcome.text = text_of(outcome.settings);
  } catch (const std::invalid_argument& error) {
    outcome.text = error.what();
    require(outcome.text.starts_with("Forebay: "));
  }
  return outcome;
}

void check_limits(const Settings& settings) {
  for (const std::int64_t time :
       {settings.writer.block_timeout_ms, settings.writer.open_timeout_ms, settings.writer.grace_ms,
        settings.writer.reconnect_timeout_ms, settings.reader.open_timeout_ms, settings.reader.reconnect_timeout_ms})
    require(time >= -1);
  try {
    (void)engine::stream_address(settings, "forebay", "out/run.bp");
  } catch (const std::invalid_argument&) {
    // It is none.
  }
  WriterOptions options;
  try {
    engine::take_rank(settings, std::nullopt, options);
    require(options.rank < options.ranks && !options.ranks_source.empty());
  } catch (const std::invalid_argument&) {
    require(settings.rank || settings.ranks, "nothing was said of ranks, and it is refused");
  }
  for (const std::uint64_t available : {std::uint64_t{0}, std::uint64_t{10}, ~std::uint64_t{0}})
    require(engine::steps_to_keep(settings.append_after_steps.value_or(-1), available) <= available);
}

void read_lines(std::string_view text) {
  static const std::map<std::string, std::string> variables = variables_by_name();
  Parameters parameters;
  Parameters environment;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name(line.substr(0, equals));
    // As the environment has it: text ends at a zero.
    const std::string value(std::string(line.substr(equals + 1)).c_str());
    (name.starts_with("FOREBAY_") ? environment : parameters)[name] = value;
    const auto variable = variables.find(name);
    if (variable == variables.end() || value.empty()) continue;
    if (name == "Rank" || name == "Ranks" || name == "Group") continue;  // the launcher's variables are read elsewhere
    const Outcome fixed = outcome_of({{name, value}}, {});
    const Outcome said = outcome_of({}, {{variable->second, value}});
    require(fixed.valid == said.valid && (!fixed.valid || fixed.text == said.text),
            "an environment variable means something else than its parameter");
    require(fixed.valid || fixed.text.find('"' + value + '"') != std::string::npos,
            "the error does not say which value");
  }
  const Outcome all = outcome_of(parameters, environment);
  if (!all.valid) return;
  if (!parameters.empty() || !environment.empty()) understood();
  check_limits(all.settings);
}

}  // namespace
}  // namespace forebay::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  forebay::fuzz::read_lines({reinterpret_cast<const char*>(data), size});
  return 0;
}
