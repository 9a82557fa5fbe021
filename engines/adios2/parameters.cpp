// SPDX-License-Identifier: Apache-2.0
#include "parameters.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <forebay/writer_options.h>

#include "errors.h"
#include "foreign_parameters.h"
#include "parameter_values.h"
#include "stream_name.h"

namespace forebay::engine {
namespace {

struct Parameter {
  std::string name;
  std::string values;
  std::string default_value;
  std::string side;  // who heeds it
  std::string meaning;
  std::function<void(Settings& settings, const std::string& text)> store;
  bool launcher = false;  // launcher_rank() looks into the environment for it
};

// The engine's own, beside the writer's options of the core.
const Parameter own_parameters[] = {
    {"Stream", "address", "", "both",
     "The stream, `RESERVATION/STREAM`. A reader may ask for one step: `RESERVATION/STREAM@17`. The path of a ticket "
     "(`NAME.forebay`) stands for what it names.",
     [](Settings& s, const std::string& text) { s.stream = text; }},

    {"Server", "HOST:PORT", "", "both",
     "A server on another node that has the stream. An address `forebay://HOST:PORT/RESERVATION/STREAM` says the "
     "same.",
     [](Settings& s, const std::string& text) { s.server = text; }},
    {"TokenFile", "path", "", "both", "The token for a server on another node (`forebay token create`).",
     [](Settings& s, const std::string& text) { s.token_file = text; }},

    {"OwnOutput", "true, false", "false", "both",
     "true: an IO may read a stream that it writes itself, which is usually a mistake.",
     [](Settings& s, const std::string& text) { s.own_output = parse_bool(text); }},

    {"ArrayOrder", "auto, row-major, column-major", "auto", "both",
     "The order of the program's arrays: C's is row-major, Fortran's column-major. auto: as `DeclareIO` was told, else "
     "as the program's language says.",
     [](Settings& s, const std::string& text) {
       s.column_major.reset();
       if (normalized(text) == "auto") return;
       s.column_major = parse_choice<bool>(text, {{"row-major", false}, {"column-major", true}});
     }},

    {"Operators", "refuse, ignore", "refuse", "writer",
     "What becomes of operators on variables (zfp, SZ, blosc, bzip2, MGARD, …), which a plugin engine cannot run. "
     "ignore: the elements are stored as they are, and a line says so. `forebay derive --precision` stores fewer "
     "bytes.",
     [](Settings& s, const std::string& text) {
       s.ignore_operators = parse_choice<bool>(text, {{"refuse", false}, {"ignore", true}});
     }},

    {"Rank", "integer", "the launcher's", "both", "This process's rank in the writer group, or in the reader group.",
     [](Settings& s, const std::string& text) { s.rank = parse_integer<std::uint32_t>(text, "a number from 0"); },
     true},
    {"Ranks", "integer", "the launcher's", "both",
     "How many processes write the stream, or read it together: they get the same answer from each BeginStep. Use "
     "`Ranks=1` if only rank 0 writes or reads. Not given: a reader counts those of its communicator, which `forebay "
     "run` knows, else the launcher's if it follows and `StepDistributionMode` is absent or AllToAll.",
     [](Settings& s, const std::string& text) {
       s.ranks = parse_integer<std::uint32_t>(text, "a number from 1");
       if (*s.ranks == 0) expected("a number from 1");
     },
     true},
    {"Group", "text", "the launcher's job, step and restart", "both",
     "Ranks that belong together give the same text. Another text means another group.",
     [](Settings& s, const std::string& text) { s.group = text; }, true},
    {"AppendAfterSteps", "integer", "-1", "writer",
     "With `Mode::Append`: how many steps to keep, counted from step 0. Negative counts from the end: -1 keeps all, -2 "
     "all "
     "but the last. 0 keeps none.",
     [](Settings& s, const std::string& text) {
       s.append_after_steps = parse_integer<std::int64_t>(text, "a whole number");
     }},
    {"Attributes", "each-step, first-step", "each-step", "writer",
     "When EndStep looks for new and changed attributes. ADIOS2 does not tell plugins of changes, so looking costs "
     "about 4 µs for each attribute. Use first-step if a program has thousands that never change.",
     [](Settings& s, const std::string& text) {
       s.attributes_each_step = parse_choice<bool>(text, {{"each-step", true}, {"first-step", false}});
     }},

    {"StageOutRule", "rules", "", "writer",
     "Steps that the manager copies out while they are written, as the user of rank 0: `every=10 "
     "destination=/project/steps format=bp5`, as in `forebay create --stage-out` without `stream=`. Several rules are "
     "separated by semicolons. Rank 0 runs where the server runs. `forebay stages` shows the stages; they continue "
     "when the program has ended.",
     [](Settings& s, const std::string& text) { s.stage_out_rule = text; }},

    {"Consumer", "name", "", "reader",
     "Reads under this name. The server keeps the position, which moves on with every EndStep; the next reader of that "
     "name begins there. A reader without a name leaves no trace.",
     [](Settings& s, const std::string& text) {
       if (!is_valid_name(text)) expected("a name of letters, digits, '_', '.' and '-', beginning with a letter");
       s.reader.consumer = text;
     }},
    {"Start", "cursor, oldest, latest, next, or a step's number", "cursor", "reader",
     "The first step: where the consumer left off (else the oldest kept), the oldest kept, the newest, only new "
     "steps, or the step with that number.",
     [](Settings& s, const std::string& text) { s.reader.start = parsed(parse_start(normalized(text))); }},
    {"WaitForWriter", "true, false", "false", "reader",
     "true: as with SST, Open waits until a writer group writes the stream, and the reader begins with the first step "
     "of that group. It takes no older step.",
     [](Settings& s, const std::string& text) { s.reader.wait_for_writer = parse_bool(text); }},
    {"AlwaysProvideLatestTimestep", "true, false", "false", "reader",
     "BeginStep gives the newest step and skips those before it.",
     [](Settings& s, const std::string& text) { s.reader.latest_only = parse_bool(text); }},
    {"MinWatermark", "committed, durable", "committed", "reader",
     "Which steps the reader sees: committed ones at once, or only those that survive power loss.",
     [](Settings& s, const std::string& text) {
       s.reader.min_watermark =
           parse_choice<Watermark>(text, {{"committed", Watermark::committed}, {"durable", Watermark::durable}});
     }},
    {"Verify", "auto, none, first, read", "auto", "reader",
     "When a block's checksum is checked. auto: when this reader first reads the whole block, unless its step was "
     "committed less than ten seconds before the reader got it; whole blocks that come over a network always. none: "
     "never. first: when this reader first reads the block or a part of it. read: at every Get.",
     [](Settings& s, const std::string& text) {
       s.reader.verify = parse_choice<Verify>(
           text,
           {{"auto", Verify::automatic}, {"none", Verify::none}, {"first", Verify::first}, {"read", Verify::read}});
     }},
    {"OnUnavailable", "wait, skip, error", "wait", "reader",
     "What BeginStep does about a step with a part on a server that is away. wait: it waits until the server is back, "
     "up to its own timeout; later steps do not come first. skip: it passes over the step, says so, and gives those "
     "that are there. error: it fails and names the server; the next BeginStep looks again.",
     [](Settings& s, const std::string& text) {
       s.reader.on_unavailable = parse_choice<OnUnavailable>(
           text, {{"wait", OnUnavailable::wait}, {"skip", OnUnavailable::skip}, {"error", OnUnavailable::error}});
     }},
    {"Follow", "true, false", "true", "reader",
     "false: gives the steps that exist at Open, then the end of the stream, without waiting for more. Not with "
     "`Consumer`.",
     [](Settings& s, const std::string& text) { s.reader.follow = parse_bool(text); }},
    {"RandomAccess", "auto, true, false", "auto", "reader",
     "true: what `Mode::ReadRandomAccess` means to file engines: no BeginStep; all variables of all steps that "
     "exist at Open; SetStepSelection chooses. auto: the same until the first BeginStep, if the stream has ended and "
     "neither `Run` nor `WaitForWriter` is set; `forebay run` knows the mode and uses it.",
     [](Settings& s, const std::string& text) {
       s.access = normalized(text) == "auto" ? AccessMode::automatic
                  : parse_bool(text)         ? AccessMode::random
                                             : AccessMode::streaming;
     }},
    {"TurnTimeoutSecs", "seconds", "-1", "reader",
     "With several `Ranks`: a rank that does not call BeginStep for so long counts as lost. Negative: it is waited for "
     "as long as it lives.",
     [](Settings& s, const std::string& text) { s.reader.turn_timeout_ms = parsed(parse_seconds(text)); }},
    {"OnReaderLost", "end, continue", "end", "reader",
     "With several `Ranks`, when one dies: the next BeginStep of the others fails and names it; or they go on without "
     "it, and it may be started again.",
     [](Settings& s, const std::string& text) {
       s.reader.on_reader_lost =
           parse_choice<OnReaderLost>(text, {{"end", OnReaderLost::end}, {"continue", OnReaderLost::go_on}});
     }},
    {"VariableFacts", "true, false", "true", "reader",
     "true: the engine sets what ADIOS2's `Variable::Steps`, `Min` and `Max` answer. false: it leaves them alone.",
     [](Settings& s, const std::string& text) { s.variable_facts = parse_bool(text); }},
};

/// A row of the core, with what it means to ADIOS2 beyond that. Readers have some of them as well.
Parameter shared(const WriterOption& option) {
  Parameter parameter{std::string(option.parameter),
                      std::string(option.values),
                      std::string(option.default_text),
                      "writer",
                      std::string(option.meaning),
                      [&option](Settings& s, const std::string& text) { parsed(option.set(s.writer, text)); },
                      false};
  const auto with_reader = [&](auto copy) {
    parameter.side = "both";
    parameter.store = [store = parameter.store, copy](Settings& s, const std::string& text) {
      store(s, text);
      copy(s);
    };
  };
  if (option.name == "timeout") {
    with_reader([](Settings& s) { s.reader.open_timeout_ms = s.writer.open_timeout_ms; });
  } else if (option.name == "reconnect_timeout") {
    with_reader([](Settings& s) { s.reader.reconnect_timeout_ms = s.writer.reconnect_timeout_ms; });
  } else if (option.name == "distribution") {
    with_reader([](Settings& s) { s.reader.distribution = static_cast<StepDistribution>(s.writer.distribution); });
  } else if (option.name == "run") {
    with_reader([](Settings& s) { s.reader.run = s.writer.run; });
  } else if (option.name == "append_after") {
    parameter.meaning +=
        " With `Mode::Write`, too, the stream goes on after that step instead of being replaced, so that a program "
        "which always writes can be restarted.";
  }
  return parameter;
}

/// Those of both sides, of writers and of readers: the order of the docs.
const std::vector<Parameter>& table() {
  static const std::vector<Parameter> parameters = [] {
    std::vector<Parameter> all(std::begin(own_parameters), std::end(own_parameters));
    for (const WriterOption& option : writer_options()) all.push_back(shared(option));
    const auto place = [](const Parameter& parameter) {
      return parameter.side == "both" ? 0 : parameter.side == "writer" ? 1 : 2;
    };
    std::ranges::stable_sort(all, {}, place);
    return all;
  }();
  return parameters;
}

// ADIOS2's own, on their way to its plugin manager.
constexpr const char* adios2_parameters[] = {"PluginName", "PluginLibrary", "verbose"};

std::string environment_name(std::string_view parameter) {
  std::string name = "FOREBAY";
  for (const char c : parameter) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0) name += '_';
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

const Parameter* find_parameter(const std::string& name) {
  const auto found = std::ranges::find_if(
      table(), [&](const Parameter& parameter) { return normalized(parameter.name) == normalized(name); });
  return found == table().end() ? nullptr : &*found;
}

bool is_adios2_parameter(const std::string& name) {
  return std::any_of(std::begin(adios2_parameters), std::end(adios2_parameters),
                     [&](const char* known) { return normalized(known) == normalized(name); });
}

// Engines of files ignore these, and XML files for several engines rely on that.
constexpr const char* streaming_parameters[] = {
    "AlwaysProvideLatestTimestep", "FirstTimestepPrecious", "QueueFullPolicy",     "QueueLimit",
    "RendezvousReaderCount",       "ReserveQueueLimit",     "StepDistributionMode"};
constexpr const char* file_engines[] = {"File", "BPFile", "FileStream", "BP3", "BP4", "BP5", "HDF5"};

template <class Names>
const char* name_among(const Names& names, std::string_view name) {
  const auto* found =
      std::ranges::find_if(names, [&](const char* known) { return normalized(known) == normalized(name); });
  return found == std::end(names) ? nullptr : *found;
}

// An unknown name as the error shows it: not longer than anyone would read, and with what was probably meant.
std::string with_nearest(const std::string& name) {
  constexpr std::size_t shown_max = 64;
  std::vector<std::string_view> known = foreign_parameter_names();
  for (const Parameter& parameter : table()) known.emplace_back(parameter.name);
  const std::string_view nearest = nearest_name(name, known);
  const std::string shown = name.size() > shown_max ? name.substr(0, shown_max) + "..." : name;
  return nearest.empty() ? shown : shown + " (did you mean " + std::string(nearest) + "?)";
}

// Other engines' parameters and misspelt names, told all at once.
class NameCheck {
 public:
  explicit NameCheck(Settings& settings) : settings_(settings) {}

  void add(const std::string& name, const std::string& text) {
    const ForeignParameter* parameter = find_foreign_parameter(name);
    if (parameter == nullptr) {
      unknown_.push_back(with_nearest(name));
    } else if (parameter->treatment == Treatment::translated) {
      note_value(*parameter, text);
    } else if (parameter->treatment == Treatment::ignored || is_harmless(*parameter, text)) {
      settings_.ignored.emplace_back(parameter->name);
    } else {
      refused_.push_back(std::string(parameter->name) + ": " + std::string(parameter->meaning));
    }
  }

  void check() const {
    if (unknown_.empty() && refused_.empty()) return;
    std::string message = "Forebay:";
    if (!unknown_.empty()) {
      message += " no engine of ADIOS2 has these parameters:";
      for (const std::string& name : unknown_) message += (&name == unknown_.data() ? " " : ", ") + name;
      message += ".";
    }
    if (!refused_.empty()) {
      message += " These parameters would change which data is written or read, and are not supported:";
      for (const std::string& name : refused_) message += " " + name;
    }
    throw std::invalid_argument(message + " See docs/adios2-parameters.md.");
  }

  const std::map<std::string, std::string>& translated() const { return translated_; }

 private:
  void note_value(const ForeignParameter& parameter, const std::string& text) {
    translated_.insert_or_assign(normalized(parameter.name), text);
  }

  Settings& settings_;
  std::vector<std::string> unknown_, refused_;
  std::map<std::string, std::string> translated_;  // values by normalized name
};

void store(const Parameter& parameter, const std::string& text, const std::string& origin, Settings& settings) {
  try {
    parameter.store(settings, text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("Forebay: " + origin + " is \"" + text + "\": " + error.what());
  }
}

}  // namespace

Settings read_settings(const std::map<std::string, std::string>& parameters, const Environment& environment,
                       std::string_view engine) {
  Settings settings;
  const bool writes_files = name_among(file_engines, engine) != nullptr;
  NameCheck foreign(settings);
  std::map<const Parameter*, const std::string*> fixed;
  for (const auto& [name, text] : parameters) {
    if (is_adios2_parameter(name)) continue;
    if (const char* known = name_among(streaming_parameters, name); writes_files && known != nullptr) {
      settings.ignored.emplace_back(known);
      continue;
    }
    const Parameter* parameter = find_parameter(name);
    if (parameter == nullptr) {
      foreign.add(name, text);
    } else if (const auto [known, first] = fixed.try_emplace(parameter, &text); !first && *known->second != text) {
      throw std::invalid_argument("Forebay: engine parameter " + parameter->name +
                                  " is given twice, with different values: \"" + *known->second + "\" and \"" + text +
                                  "\"");
    }
  }
  foreign.check();
  for (const auto& [parameter, text] : fixed) store(*parameter, *text, "engine parameter " + parameter->name, settings);
  for (const Parameter& parameter : table()) {
    if (parameter.launcher || fixed.contains(&parameter)) continue;
    const std::string variable = environment_name(parameter.name);
    const char* text = environment(variable.c_str());
    if (text == nullptr || *text == '\0') continue;
    store(parameter, text, "environment variable " + variable, settings);
  }
  translate_foreign_parameters(foreign.translated(), settings);
  return settings;
}

Settings read_place(const std::map<std::string, std::string>& parameters, const Environment& environment) {
  Settings settings;
  for (const char* name : {"Stream", "Server", "TokenFile", "Rank", "Ranks", "Group", "Run"}) {
    const Parameter& parameter = *find_parameter(name);
    const auto given = std::ranges::find_if(
        parameters, [&](const auto& entry) { return normalized(entry.first) == normalized(parameter.name); });
    const char* variable = parameter.launcher ? nullptr : environment(environment_name(parameter.name).c_str());
    const std::string text = given != parameters.end() ? given->second : variable == nullptr ? "" : variable;
    if (text.empty()) continue;
    try {
      parameter.store(settings, text);
    } catch (const std::invalid_argument&) {
      continue;
    }
  }
  return settings;
}

std::string foreign_notice(const Settings& settings, const std::string& path, bool writes) {
  std::string text;
  if (writes) {
    for (const std::string& translation : settings.translated) text += (text.empty() ? "" : ", ") + translation;
    if (!text.empty()) text = "translates " + text;
  }
  if (!settings.ignored.empty()) {
    text += text.empty() ? "ignores" : "; ignores";
    for (const std::string& name : settings.ignored) text += (&name == settings.ignored.data() ? " " : ", ") + name;
  }
  return text.empty() ? text : "Forebay: stream " + path + " " + text;
}

std::string original_name(const Settings& settings, const std::string& plugin_name,
                          const std::optional<std::string>& opened_name) {
  if (!opened_name || is_ticket_path(*opened_name) || !has_placeholder(settings.stream.value_or(plugin_name)))
    return {};
  return plain_path(*opened_name);
}

void check_original_name(const Settings& settings, const std::string& path, const std::string& recorded,
                         const std::string& opened) {
  if (recorded.empty() || opened.empty() || recorded == opened) return;
  // Where folders do not count, programs in several folders may mean one file.
  const auto last_part = [](const std::string& name) { return name.substr(name.rfind('/') + 1); };
  const bool folders_count = has_path_placeholder(settings.stream.value_or(""));
  if (!folders_count && last_part(recorded) == last_part(opened)) return;
  throw std::invalid_argument("Forebay: \"" + opened + "\" leads to stream " + path + ", which was written as \"" +
                              recorded + "\"; use {path} in place of {name}, or name the stream of each program");
}

Ticket stream_ticket(const Settings& settings, const std::string& plugin_name,
                     const std::optional<std::string>& opened_name) {
  const bool opens_ticket = opened_name && is_ticket_path(*opened_name);
  std::string text;
  if (settings.stream) {
    text = *settings.stream;
  } else if (looks_like_address(plugin_name) || is_ticket_path(plugin_name)) {
    text = plugin_name;
  } else if (!opens_ticket) {
    throw std::invalid_argument(
        "Forebay: no stream is named. Set the engine parameter Stream, for example Stream=run1/flow, or the "
        "environment "
        "variable FOREBAY_STREAM, or give the address as PluginName.");
  }
  // The file that the program opens says more than a name that is made from its.
  if (opens_ticket && (text.empty() || has_placeholder(text))) text = *opened_name;
  if (is_ticket_path(text)) return value_or_throw(read_ticket(text), "reading the ticket");
  if (has_placeholder(text)) {
    if (!opened_name) {
      throw std::invalid_argument("Forebay: Stream=" + text +
                                  " stands for the name that the program opens, which only `forebay run` can see; "
                                  "start the program with it, or name the stream");
    }
    text = fill_placeholders(std::move(text), *opened_name);
  }
  return Ticket{value_or_throw(parse_address(text), "reading the stream's address"), {}};
}

Address stream_address(const Settings& settings, const std::string& plugin_name,
                       const std::optional<std::string>& opened_name) {
  return stream_ticket(settings, plugin_name, opened_name).address;
}

std::optional<ServerPlace> stream_server(const Settings& settings, const Address& address) {
  const std::string server = !address.server.empty() ? address.server : settings.server.value_or("");
  if (server.empty()) return std::nullopt;
  return value_or_throw(ServerPlace::at_server(server, settings.token_file.value_or("")), "finding the server");
}

Result<LauncherRank> found_rank(const std::optional<LauncherRank>& communicator) {
  Result<LauncherRank> launcher = launcher_rank();
  const bool chosen = std::getenv("FOREBAY_RANK") != nullptr || std::getenv("FOREBAY_RANKS") != nullptr;
  if (!communicator || chosen) return launcher;
  LauncherRank found = *communicator;
  if (const char* group = std::getenv("FOREBAY_GROUP"); group != nullptr && *group != '\0') found.group = group;
  return found;
}

void take_rank(const Settings& settings, const std::optional<LauncherRank>& communicator, WriterOptions& options) {
  if (settings.ranks && (settings.rank || *settings.ranks == 1) && settings.group) {
    options.rank = settings.rank.value_or(0);
    options.ranks = *settings.ranks;
    options.group = *settings.group;
    options.ranks_source = "engine parameters";
  } else {
    const bool alone = settings.ranks == 1U;
    const Result<LauncherRank> launcher = found_rank(communicator);
    // Whoever gives both numbers, or writes alone, does not depend on what the launcher's variables say.
    const bool complete = settings.ranks && (settings.rank || alone);
    if (!launcher && !complete) throw_error(launcher.error(), "finding this process's rank");
    const LauncherRank found = launcher.value_or(LauncherRank{});
    if (settings.ranks && !settings.rank && !alone && found.source == "default") {
      throw std::invalid_argument("Forebay: Ranks=" + std::to_string(*settings.ranks) +
                                  " is set, but no launcher says which rank this process has. Set Rank as well.");
    }
    options.rank = settings.rank.value_or(alone ? 0 : found.rank);
    options.ranks = settings.ranks.value_or(found.ranks);
    options.group = settings.group.value_or(found.group);
    options.ranks_source = settings.ranks ? "engine parameter Ranks" : found.source;
  }
  if (options.rank >= options.ranks) {
    throw std::invalid_argument("Forebay: rank " + std::to_string(options.rank) + " of " +
                                std::to_string(options.ranks) + " (" + options.ranks_source +
                                "): ranks are numbered from 0 to one less than their number.");
  }
}

void take_reader_rank(const Settings& settings, const std::optional<LauncherRank>& communicator,
                      ReaderOptions& options) {
  if (settings.ranks) {
    WriterOptions place;
    take_rank(settings, communicator, place);
    options.rank = place.rank;
    options.ranks = place.ranks;
    options.ranks_source = place.ranks_source;
    options.group = place.group;
    return;
  }
  const bool shares =
      options.distribution != StepDistribution::stream_default && options.distribution != StepDistribution::all_to_all;
  if (!communicator && (!options.follow || shares)) return;
  const LauncherRank found =
      communicator ? *communicator : value_or_throw(launcher_rank(), "finding this process's rank");
  options.rank = found.rank;
  options.ranks = found.ranks;
  options.ranks_source = found.source;
  options.group = settings.group.value_or(found.group);
}

std::uint64_t steps_to_keep(std::int64_t wanted, std::uint64_t available) {
  if (wanted >= 0) return std::min(static_cast<std::uint64_t>(wanted), available);
  const std::uint64_t dropped = static_cast<std::uint64_t>(-(wanted + 1));
  return dropped >= available ? 0 : available - dropped;
}

std::string parameter_table() {
  std::string text =
      "| parameter | values | default | for | meaning | environment |\n"
      "|---|---|---|---|---|---|\n";
  for (const Parameter& parameter : table()) {
    text += "| `" + parameter.name + "` | " + parameter.values + " | " + parameter.default_value + " | " +
            parameter.side + " | " + parameter.meaning + " | `" + environment_name(parameter.name) + "` |\n";
  }
  return text;
}

}  // namespace forebay::engine
