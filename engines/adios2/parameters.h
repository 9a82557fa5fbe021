// SPDX-License-Identifier: Apache-2.0
// The engine's parameters: one table from which parsing, the list in error messages and docs/adios2-parameters.md come.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <forebay/address.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

namespace forebay::engine {

/// What the parameters and the environment say; members that nobody set hold the defaults.
struct Settings {
  std::optional<std::string> stream;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> ranks;
  std::optional<std::string> group;
  std::optional<std::uint64_t> append_after;  ///< number of the last step to keep
  std::optional<std::int64_t>
      append_after_steps;  ///< how many steps to keep; negative: counted from the end, -1 keeps all
  bool random_access = false;
  bool variable_facts = true;        ///< see variable_facts.h
  bool attributes_each_step = true;  ///< false: only those of the first EndStep
  WriterOptions writer;              ///< all but mode, rank, ranks and group
  ReaderOptions reader;
};

/// A variable's value, or null; std::getenv but in tests.
using Environment = std::function<const char*(const char*)>;

/// Reads an IO's parameters, and the environment for those that the IO does not fix. Throws std::invalid_argument for
/// an unknown parameter (the text lists the known ones) and for a value that does not parse.
Settings read_settings(const std::map<std::string, std::string>& parameters, const Environment& environment);

/// The stream: parameter or environment, else the plugin's name if that is an address. Throws std::invalid_argument.
Address stream_address(const Settings& settings, const std::string& plugin_name);

/// Rank, ranks, their source and the group id: parameters first, else the launcher's.
void take_rank(const Settings& settings, WriterOptions& options);

/// How many of the stream's steps AppendAfterSteps=`wanted` keeps if it has steps 0 to `available` - 1.
std::uint64_t steps_to_keep(std::int64_t wanted, std::uint64_t available);

/// The table as Markdown, for docs/adios2-parameters.md.
std::string parameter_table();

}  // namespace forebay::engine
