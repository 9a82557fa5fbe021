// SPDX-License-Identifier: Apache-2.0
// The engine's parameters: the writer's options of the core and its own rows, one table from which parsing, the list in
// error messages and docs/adios2-parameters.md come.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/address.h>
#include <forebay/reader.h>
#include <forebay/ticket.h>
#include <forebay/writer.h>

namespace forebay::engine {

/// Whether a reader offers all steps at once.
enum class AccessMode : std::uint8_t {
  automatic,  ///< until the first BeginStep, if the stream has ended and nothing says how to follow it
  random,
  streaming,
};

/// What the parameters and the environment say; members that nobody set hold the defaults.
struct Settings {
  std::optional<std::string> stream;
  std::optional<std::string> server;      ///< on another node, "HOST:PORT"
  std::optional<std::string> token_file;  ///< for a server on another node
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> ranks;
  std::optional<std::string> group;
  std::optional<std::int64_t>
      append_after_steps;  ///< how many steps to keep; negative: counted from the end, -1 keeps all
  AccessMode access = AccessMode::automatic;
  bool ignore_operators = false;              ///< of variables: elements are written as they are
  bool own_output = false;                    ///< one IO may read a stream that it writes
  std::optional<bool> column_major;           ///< the order of the IO's arrays; none: what the IO says
  bool variable_facts = true;                 ///< see variable_facts.h
  std::optional<std::string> stage_out_rule;  ///< what the manager copies out while the stream is written
  bool attributes_each_step = true;           ///< false: only those of the first EndStep
  WriterOptions writer;                       ///< all but mode, rank, ranks and group
  std::optional<Retention> retention_if_new;  ///< where no retention is given and the stream is created or replaced
  ReaderOptions reader;                       ///< all but rank, ranks and group
  std::vector<std::string> ignored;           ///< names of other engines' parameters that have no meaning here
  std::vector<std::string> translated;        ///< what became of those that have, for writers
};

/// A variable's value, or null; std::getenv but in tests.
using Environment = std::function<const char*(const char*)>;

/// Reads an IO's parameters, and the environment for those that the IO does not fix. Throws std::invalid_argument for
/// parameters that no engine has (all of them, with the nearest known name), for those of other engines that would
/// change what is written or read, and for a value that does not parse. `engine` is the type that the program chose, if
/// `forebay run` replaced it: what only streaming engines read is ignored if that one writes files.
Settings read_settings(const std::map<std::string, std::string>& parameters, const Environment& environment,
                       std::string_view engine = {});

/// The stream, its server and this process's rank alone, as far as they can be read; whatever else is wrong.
Settings read_place(const std::map<std::string, std::string>& parameters, const Environment& environment);

/// What became of other engines' parameters, as one line; empty if there is nothing to tell.
std::string foreign_notice(const Settings& settings, const std::string& path, bool writes);

/// The stream: parameter or environment, else the plugin's name if that is an address. `opened_name` is what the
/// program opens, where that is known: {name} and {path} in the address stand for it. Throws std::invalid_argument.
///
/// A ticket's path stands for the address in the ticket. One that the program opens counts where the parameters do not
/// name a stream, or only with a placeholder.
Address stream_address(const Settings& settings, const std::string& plugin_name,
                       const std::optional<std::string>& opened_name);

/// The same with what a ticket says beside the address; without a ticket, `uuid` is empty.
Ticket stream_ticket(const Settings& settings, const std::string& plugin_name,
                     const std::optional<std::string>& opened_name);

/// The name that the program opens, where the stream is named after it; else empty.
std::string original_name(const Settings& settings, const std::string& plugin_name,
                          const std::optional<std::string>& opened_name);

/// Throws std::invalid_argument if the program's name leads to a stream that was written under another one, so that a
/// reader would get another file's data. `recorded` and `opened`: original_name() of writer and reader; empty: not
/// known.
void check_original_name(const Settings& settings, const std::string& path, const std::string& recorded,
                         const std::string& opened);

/// Where the address or the parameters name a server on another node; none: what the environment names. Throws
/// forebay's errors.
std::optional<ServerPlace> stream_server(const Settings& settings, const Address& address);

/// The rank where no parameter says it: FOREBAY_RANK and FOREBAY_RANKS, then the communicator of the Open where it is
/// known, then the launcher's.
Result<LauncherRank> found_rank(const std::optional<LauncherRank>& communicator);

/// Rank, ranks, their source and the group id: parameters first, else found_rank().
void take_rank(const Settings& settings, const std::optional<LauncherRank>& communicator, WriterOptions& options);

/// A reader's place in its reader group: by the parameters; else of the program's communicator, whatever the
/// environment says; else the launcher's, for a reader that follows and shares its steps with nobody. Alone: one rank.
void take_reader_rank(const Settings& settings, const std::optional<LauncherRank>& communicator,
                      ReaderOptions& options);

/// How many of the stream's steps AppendAfterSteps=`wanted` keeps if it has steps 0 to `available` - 1.
std::uint64_t steps_to_keep(std::int64_t wanted, std::uint64_t available);

/// The table as Markdown, for docs/adios2-parameters.md.
std::string parameter_table();

}  // namespace forebay::engine
