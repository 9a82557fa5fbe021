// SPDX-License-Identifier: Apache-2.0
// The names are those that the parsers of all engines know, from ADIOS2 2.8.0 to 2.12.1, and those of its
// documentation.
#include "foreign_parameters.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "parameter_values.h"

namespace forebay::engine {
namespace {

constexpr Treatment ignored = Treatment::ignored, translated = Treatment::translated, refused = Treatment::refused;

// The order is that of the docs: what is translated or refused, then what is ignored, by subject.
constexpr ForeignParameter known_parameters[] = {
    {"QueueLimit",
     "SST",
     translated,
     "With `QueueFullPolicy=Block`, which is SST's default: `LagLimit=N`, if `LagLimit` is not given. With `Discard`: "
     "`Retention=last:N`, if `Retention` is not given and the group creates or replaces the stream. 0 is no limit.",
     {}},
    {"QueueFullPolicy", "SST", translated, "See `QueueLimit`, without which it has no effect.", {}},
    {"ReserveQueueLimit", "SST", translated, "`QueueLimit` with `Discard` keeps at least this many steps.", {}},
    {"FirstTimestepPrecious",
     "SST",
     translated,
     "true: `Retention=first:1`, under the same conditions as `last:N`. The first step stays until the stream has "
     "ended.",
     {}},

    {"SelectSteps", "BP5", refused, "It chooses steps. Use `Start`, or open one step as `RESERVATION/STREAM@17`.", ""},
    {"FlattenSteps", "BP5", refused,
     "It merges all steps into one. Open with `RandomAccess=true` to read all steps at once.", "false"},
    {"CompressionMethod", "SST", refused, "Lossy compression changes the data. Forebay stores what was written.",
     "none"},
    {"FloatAccuracy", "DataMan", refused, "A lower accuracy changes the data. Forebay stores what was written.", ""},
    {"RemoteDataPath", "BP5", refused, "It reads the data of another file.", ""},
    {"RemoteHost", "BP5", refused, "It reads the data of another host.", ""},
    {"UUID", "BP5", refused, "It names the file whose data is read.", ""},
    {"TarInfo", "BP5", refused, "It reads a file inside an archive.", ""},
    {"include-dataset", "Campaign", refused, "It chooses data sets of a campaign. Name the stream.", ""},
    {"exclude-dataset", "Campaign", refused, "It leaves out data sets of a campaign. Name the stream.", ""},

    {"StreamReader", "BP4, BP5", ignored, "Readers follow the stream anyway.", {}},
    {"BeginStepPollingFrequencySecs", "BP4, BP5", ignored, "Nothing is polled: readers are told of each step.", {}},
    {"IgnoreFlattenSteps", "BP5", ignored, "Steps are never flattened.", {}},
    {"RegistrationMethod", "SST", ignored, "Readers find the stream through the server.", {}},
    {"DataTransport", "SST", ignored, "transport", {}},
    {"WANDataTransport", "SST", ignored, "transport", {}},
    {"ControlTransport", "SST", ignored, "transport", {}},
    {"ControlModule", "SST", ignored, "transport", {}},
    {"NetworkInterface", "SST", ignored, "transport", {}},
    {"ControlInterface", "SST", ignored, "transport", {}},
    {"DataInterface", "SST", ignored, "transport", {}},
    {"CPCommPattern", "SST", ignored, "transport", {}},
    {"RemoteGroup", "SST", ignored, "transport", {}},
    {"IPAddress", "DataMan", ignored, "transport", {}},
    {"Port", "DataMan", ignored, "transport", {}},
    {"Timeout", "DataMan", ignored, "transport; `OpenTimeoutSecs` is how long Open waits", {}},
    {"TransportMode",
     "DataMan",
     ignored,
     "transport; no step is lost here. `AlwaysProvideLatestTimestep=true` skips steps as `fast` does",
     {}},
    {"Monitor", "DataMan", ignored, "profiling", {}},
    {"CombiningSteps", "DataMan", ignored, "transport", {}},
    {"EngineMode", "SSC", ignored, "transport", {}},
    {"AppID", "DataSpaces", ignored, "transport", {}},
    {"UseHttps", "BP5", ignored, "transport", {}},
    {"VerifySSL", "BP5", ignored, "transport", {}},
    {"hostname", "Campaign", ignored, "transport", {}},
    {"Threading", "DataMan, SSC", ignored, "threads", {}},
    {"SpeculativePreloadMode", "SST", ignored, "preload", {}},
    {"PreloadMode", "SST", ignored, "preload", {}},
    {"SpecAutoNodeThreshold", "SST", ignored, "preload", {}},
    {"ReaderShortCircuitReads", "SST, BP5", ignored, "preload", {}},
    {"MarshalMethod", "SST", ignored, "marshalling", {}},
    {"IsRowMajor", "SST", ignored, "marshalling", {}},
    {"UseOneTimeAttributes", "SST, BP5", ignored, "marshalling; every step has all attributes set up to it", {}},
    {"StatsBlockSize", "BP4", ignored, "Each block has one minimum and maximum.", {}},
    {"NumAggregators", "BP4, BP5", ignored, "aggregation", {}},
    {"AggregatorRatio", "BP4, BP5", ignored, "aggregation", {}},
    {"NumSubFiles", "BP5", ignored, "aggregation", {}},
    {"SubStreams", "BP4", ignored, "aggregation", {}},
    {"AggregationType", "BP5", ignored, "aggregation", {}},
    {"EnableWriterRerouting", "BP5", ignored, "aggregation", {}},
    {"ReroutingThresholdFactor", "BP5", ignored, "aggregation", {}},
    {"CollectiveMetadata", "BP4", ignored, "aggregation", {}},
    {"UseSelectiveMetadataAggregation", "BP5", ignored, "aggregation", {}},
    {"OneLevelGatherRanksLimit", "BP5", ignored, "aggregation", {}},
    {"OneLevelGatherRankLimit", "BP5", ignored, "aggregation; ADIOS2's documentation spells it so", {}},
    {"IdleH5Writer", "HDF5", ignored, "aggregation", {}},
    {"H5CollectiveMPIO", "HDF5", ignored, "aggregation", {}},
    {"NodeLocal", "BP4, BP5", ignored, "placement of files", {}},
    {"Node-Local", "BP4", ignored, "placement of files", {}},
    {"BurstBufferPath", "BP4, BP5", ignored, "A reservation is the burst buffer.", {}},
    {"BurstBufferDrain", "BP4, BP5", ignored, "`forebay stage-out` drains.", {}},
    {"BurstBufferVerbose", "BP4", ignored, "`forebay stages` shows the progress.", {}},
    {"StripeSize", "BP5", ignored, "placement of files", {}},
    {"H5ChunkDim", "HDF5", ignored, "placement of files", {}},
    {"H5ChunkVars", "HDF5", ignored, "placement of files", {}},
    {"H5ChunkVar", "HDF5", ignored, "placement of files; ADIOS2's documentation spells it so", {}},
    {"Tiers", "MHS", ignored, "placement of files", {}},
    {"cachepath", "Campaign", ignored, "placement of files", {}},
    {"campaignstorepath", "Campaign", ignored, "placement of files", {}},
    {"FailOnEOF", "BP5", ignored, "placement of files", {}},
    {"DataFileTransport", "BP5", ignored, "placement of files", {}},
    {"S3Endpoint", "BP5", ignored, "placement of files", {}},
    {"S3Bucket", "BP5", ignored, "placement of files", {}},
    {"S3AccessKeyID", "BP5", ignored, "placement of files", {}},
    {"S3SecretKey", "BP5", ignored, "placement of files", {}},
    {"S3SessionToken", "BP5", ignored, "placement of files", {}},
    {"S3ObjectMode", "BP5", ignored, "placement of files", {}},
    {"S3DirectUploadThreshold", "BP5", ignored, "placement of files", {}},
    {"DirectIO", "BP5", ignored, "buffers", {}},
    {"DirectIOAlignOffset", "BP5", ignored, "buffers", {}},
    {"DirectIOAlignBuffer", "BP5", ignored, "buffers", {}},
    {"InitialBufferSize", "BP4, BP5", ignored, "buffers", {}},
    {"MaxBufferSize", "BP4", ignored, "buffers", {}},
    {"BufferGrowthFactor", "BP4", ignored, "buffers", {}},
    {"GrowthFactor", "BP5", ignored, "buffers", {}},
    {"BufferChunkSize", "BP5", ignored, "buffers", {}},
    {"BufferVType", "BP5", ignored, "buffers", {}},
    {"MinDeferredSize", "BP5", ignored, "buffers", {}},
    {"MaxShmSize", "BP5", ignored, "buffers", {}},
    {"MaxStepBufferSize", "DataMan", ignored, "buffers", {}},
    {"MaxOpenFilesAtOnce", "BP5", ignored, "buffers", {}},
    {"FlushStepsCount", "BP4", ignored, "Every step is visible when EndStep returns.", {}},
    {"AsyncOpen", "BP4, BP5", ignored, "threads", {}},
    {"AsyncWrite", "BP5", ignored, "threads", {}},
    {"Threads", "BP4, BP5", ignored, "threads", {}},
    {"MetadataThreads", "BP5", ignored, "threads", {}},
    {"Profile", "BP4", ignored, "profiling", {}},
    {"ProfileUnits", "BP4", ignored, "profiling", {}},
};

const char* name_of(Treatment treatment) {
  switch (treatment) {
    case Treatment::ignored:
      return "ignored";
    case Treatment::translated:
      return "translated";
    case Treatment::refused:
      return "refused";
  }
  return "";
}

enum class QueueFull : std::uint8_t { block, discard };

// The value of one parameter, or `absent` where nobody set it.
template <class Value, class Parse>
Value value_of(const std::map<std::string, std::string>& by_name, const char* name, Value absent, const Parse& parse) {
  const auto found = by_name.find(normalized(name));
  if (found == by_name.end()) return absent;
  try {
    return parse(found->second);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("Forebay: engine parameter " + std::string(name) + " is \"" + found->second +
                                "\": " + error.what());
  }
}

}  // namespace

const ForeignParameter* find_foreign_parameter(std::string_view name) {
  const std::string wanted = normalized(name);
  const auto* found = std::ranges::find_if(
      known_parameters, [&](const ForeignParameter& known) { return normalized(known.name) == wanted; });
  return found == std::end(known_parameters) ? nullptr : found;
}

std::vector<std::string_view> foreign_parameter_names() {
  std::vector<std::string_view> names;
  for (const ForeignParameter& parameter : known_parameters) names.push_back(parameter.name);
  return names;
}

bool is_harmless(const ForeignParameter& parameter, std::string_view value) {
  const std::string given = normalized(value);
  if (given == normalized(parameter.harmless_value)) return true;
  return parameter.harmless_value == "false" && (given == "no" || given == "off" || given == "0");
}

void translate_foreign_parameters(const std::map<std::string, std::string>& by_name, Settings& settings) {
  const auto count = [](const std::string& text) {
    return parse_integer<std::uint32_t>(text, "a number of steps; 0: no limit");
  };
  const auto limit = value_of(by_name, "QueueLimit", std::uint32_t{0}, count);
  const auto reserve = value_of(by_name, "ReserveQueueLimit", std::uint32_t{0}, count);
  const auto policy = value_of(by_name, "QueueFullPolicy", QueueFull::block, [](const std::string& text) {
    return parse_choice<QueueFull>(text, {{"Block", QueueFull::block}, {"Discard", QueueFull::discard}});
  });
  const bool first_stays = value_of(by_name, "FirstTimestepPrecious", false, parse_bool);

  if (limit != 0 && policy == QueueFull::block) {
    const std::string source = "QueueLimit with QueueFullPolicy=Block";
    if (settings.writer.lag_limit) {
      settings.translated.push_back(source + " to nothing, because LagLimit is given");
    } else {
      settings.translated.push_back(source + " to LagLimit=" + std::to_string(limit));
      settings.writer.lag_limit = limit;
    }
  }

  Retention retention;
  std::string source;
  if (limit != 0 && policy == QueueFull::discard) {
    retention.last = std::max(limit, reserve);
    source = "QueueLimit with QueueFullPolicy=Discard";
  }
  if (first_stays) {
    retention.first = 1;
    source += source.empty() ? "FirstTimestepPrecious" : " and FirstTimestepPrecious";
  }
  if (source.empty()) return;
  if (settings.writer.retention) {
    settings.translated.push_back(source + " to nothing, because Retention is given");
    return;
  }
  settings.translated.push_back(source + " to Retention=" + to_string(retention));
  settings.retention_if_new = std::move(retention);
}

std::string foreign_parameter_table() {
  std::string text =
      "| parameter | engines | here | meaning |\n"
      "|---|---|---|---|\n";
  for (const ForeignParameter& parameter : known_parameters) {
    text += "| `" + std::string(parameter.name) + "` | " + std::string(parameter.engines) + " | " +
            name_of(parameter.treatment) + " | " + std::string(parameter.meaning) + " |\n";
  }
  return text;
}

}  // namespace forebay::engine
