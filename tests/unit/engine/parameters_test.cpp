// SPDX-License-Identifier: Apache-2.0
#include "parameters.h"

#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foreign_parameters.h"
#include "tests/support/temporary_directory.h"

namespace forebay::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Parameters = std::map<std::string, std::string>;

Settings settings_of(const Parameters& parameters, const Parameters& environment = {}, std::string_view engine = {}) {
  const auto variable_of = [&](const char* variable) {
    const auto found = environment.find(variable);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  return read_settings(parameters, variable_of, engine);
}

std::string error_of(const Parameters& parameters, const Parameters& environment = {}) {
  try {
    settings_of(parameters, environment);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(EngineParameters, nothing_set_means_the_client_defaults) {
  const Settings settings = settings_of({{"PluginName", "x"}, {"PluginLibrary", "y"}, {"verbose", "5"}});
  EXPECT_FALSE(settings.stream || settings.rank || settings.ranks || settings.group || settings.writer.append_after);
  EXPECT_EQ(settings.access, AccessMode::automatic);
  EXPECT_EQ(settings.writer.rendezvous_readers, WriterOptions{}.rendezvous_readers);
  EXPECT_EQ(settings.writer.statistics, WriterOptions{}.statistics);
  EXPECT_FALSE(settings.writer.retention);
  EXPECT_EQ(settings.reader.start.kind, Start::Kind::cursor);
  EXPECT_TRUE(settings.reader.follow);
}

TEST(EngineParameters, what_only_streaming_engines_read_is_ignored_where_the_program_writes_files) {
  const Parameters stock = {{"rendezvousReaderCount", "1"}, {"QueueLimit", "1"},        {"QueueFullPolicy", "Discard"},
                            {"FirstTimestepPrecious", "1"}, {"ReserveQueueLimit", "3"}, {"WhenFull", "error"}};
  for (const char* engine : {"BP5", "bp4", "File", "HDF5"}) {
    const Settings settings = settings_of(stock, {}, engine);
    EXPECT_EQ(settings.writer.rendezvous_readers, 0U) << engine;
    EXPECT_FALSE(settings.retention_if_new) << engine;
    EXPECT_FALSE(settings.writer.lag_limit) << engine;
    EXPECT_EQ(settings.writer.when_full, WhenFull::error) << "Forebay's own parameters count: " << engine;
    EXPECT_EQ(settings.ignored.size(), 5U) << engine;
  }
  for (const char* engine : {"SST", "", "Plugin"}) {
    const Settings settings = settings_of(stock, {}, engine);
    EXPECT_EQ(settings.writer.rendezvous_readers, 1U) << engine;
    EXPECT_TRUE(settings.retention_if_new) << engine;
  }
  const Settings asked = settings_of(stock, {{"FOREBAY_RENDEZVOUS_READER_COUNT", "2"}}, "BP5");
  EXPECT_EQ(asked.writer.rendezvous_readers, 2U);
}

TEST(EngineParameters, what_the_table_calls_a_default_is_what_happens_without_it) {
  // Set to their documented defaults, the parameters change nothing.
  const Settings unset = settings_of({});
  const Settings set = settings_of({{"OpenTimeoutSecs", "60"},
                                    {"ReconnectTimeoutSecs", "60"},
                                    {"RendezvousReaderCount", "0"},
                                    {"Force", "false"},
                                    {"WhenFull", "block"},
                                    {"BlockTimeoutSecs", "60"},
                                    {"LagLimit", "0"},
                                    {"Durability", "committed"},
                                    {"GraceSecs", "10"},
                                    {"StatsLevel", "1"},
                                    {"Checksums", "true"},
                                    {"Attributes", "each-step"},
                                    {"Start", "cursor"},
                                    {"AlwaysProvideLatestTimestep", "false"},
                                    {"MinWatermark", "committed"},
                                    {"Verify", "auto"},
                                    {"OnUnavailable", "wait"},
                                    {"Follow", "true"},
                                    {"RandomAccess", "auto"},
                                    {"TurnTimeoutSecs", "-1"},
                                    {"OnReaderLost", "end"}});
  EXPECT_EQ(set.writer.open_timeout_ms, unset.writer.open_timeout_ms);
  EXPECT_EQ(set.reader.open_timeout_ms, unset.reader.open_timeout_ms);
  EXPECT_EQ(set.writer.reconnect_timeout_ms, unset.writer.reconnect_timeout_ms);
  EXPECT_EQ(set.reader.reconnect_timeout_ms, unset.reader.reconnect_timeout_ms);
  EXPECT_EQ(set.writer.rendezvous_readers, unset.writer.rendezvous_readers);
  EXPECT_EQ(set.writer.force, unset.writer.force);
  EXPECT_EQ(set.writer.when_full, unset.writer.when_full);
  EXPECT_EQ(set.writer.block_timeout_ms, unset.writer.block_timeout_ms);
  EXPECT_EQ(set.writer.lag_limit.value_or(0), unset.writer.lag_limit.value_or(0));
  EXPECT_EQ(set.writer.durability, unset.writer.durability);
  EXPECT_EQ(set.writer.grace_ms, unset.writer.grace_ms);
  EXPECT_EQ(set.writer.statistics, unset.writer.statistics);
  EXPECT_EQ(set.writer.checksums, unset.writer.checksums);
  EXPECT_EQ(set.attributes_each_step, unset.attributes_each_step);
  EXPECT_EQ(set.reader.start.kind, unset.reader.start.kind);
  EXPECT_EQ(set.reader.latest_only, unset.reader.latest_only);
  EXPECT_EQ(set.reader.min_watermark, unset.reader.min_watermark);
  EXPECT_EQ(set.reader.verify, unset.reader.verify);
  EXPECT_EQ(set.reader.on_unavailable, unset.reader.on_unavailable);
  EXPECT_EQ(set.reader.follow, unset.reader.follow);
  EXPECT_EQ(set.access, unset.access);
  EXPECT_EQ(set.reader.turn_timeout_ms, unset.reader.turn_timeout_ms);
  EXPECT_EQ(set.reader.on_reader_lost, unset.reader.on_reader_lost);
}

TEST(EngineParameters, names_and_choices_are_accepted_in_any_case) {
  const Settings settings = settings_of({{"stepdistributionmode", "roundrobin"},
                                         {"ALWAYSPROVIDELATESTTIMESTEP", "Yes"},
                                         {"whenfull", "Drop-Oldest"},
                                         {"verify", "READ"},
                                         {"onunavailable", "Skip"},
                                         {"statslevel", "0"}});
  EXPECT_EQ(settings.reader.distribution, StepDistribution::round_robin);
  EXPECT_EQ(settings.writer.distribution, static_cast<std::uint8_t>(StepDistribution::round_robin));
  EXPECT_TRUE(settings.reader.latest_only);
  EXPECT_EQ(settings.writer.when_full, WhenFull::drop_oldest);
  EXPECT_EQ(settings.reader.verify, Verify::read);
  EXPECT_EQ(settings.reader.on_unavailable, OnUnavailable::skip);
  EXPECT_FALSE(settings.writer.statistics);
}

TEST(EngineParameters, seconds_have_fractions_and_negative_ones_last_for_ever) {
  const Settings settings = settings_of({{"OpenTimeoutSecs", "0.25"}, {"BlockTimeoutSecs", "-1"}, {"GraceSecs", "0"}});
  EXPECT_EQ(settings.reader.open_timeout_ms, 250);
  EXPECT_EQ(settings.writer.open_timeout_ms, 250);
  EXPECT_EQ(settings.writer.block_timeout_ms, -1);
  EXPECT_EQ(settings.writer.grace_ms, 0);
}

TEST(EngineParameters, environment_gives_what_the_io_does_not_fix) {
  const Parameters environment{{"FOREBAY_STREAM", "run1/flow"}, {"FOREBAY_APPEND_AFTER", "40"}, {"FOREBAY_VERIFY", ""}};
  const Settings settings = settings_of({{"Stream", "run2/flow"}}, environment);
  EXPECT_EQ(settings.stream, "run2/flow");
  EXPECT_EQ(settings.writer.append_after, 40U);
  EXPECT_EQ(settings.reader.verify, Verify::automatic);
  EXPECT_THAT(error_of({}, {{"FOREBAY_APPEND_AFTER", "last"}}),
              AllOf(HasSubstr("FOREBAY_APPEND_AFTER"), HasSubstr("last")));
}

TEST(EngineParameters, run_is_that_of_both_sides_and_an_empty_one_goes_before_the_environment) {
  const Settings shared = settings_of({{"WaitForWriter", "true"}}, {{"FOREBAY_RUN", "monday"}});
  EXPECT_EQ(shared.writer.run, "monday");
  EXPECT_EQ(shared.reader.run, "monday");
  EXPECT_TRUE(shared.reader.wait_for_writer);
  EXPECT_EQ(settings_of({{"Run", ""}}, {{"FOREBAY_RUN", "monday"}}).reader.run, "");
}

TEST(EngineParameters, unknown_names_are_refused_all_at_once_with_the_nearest_known_ones) {
  EXPECT_THAT(error_of({{"Colour", "red"}, {"Retentoin", "last:3"}, {"queuelimt", "3"}}),
              AllOf(HasSubstr("Colour"), HasSubstr("Retentoin (did you mean Retention?)"),
                    HasSubstr("queuelimt (did you mean QueueLimit?)"), Not(HasSubstr("Colour ("))));
}

TEST(EngineParameters, unknown_name_of_any_length_makes_a_short_error) {
  EXPECT_LT(error_of({{std::string(100'000, 'x'), ""}}).size(), 300U);
}

TEST(EngineParameters, what_would_change_the_data_is_refused_unless_it_asks_for_nothing) {
  EXPECT_THAT(error_of({{"SelectSteps", "0:10:2"}, {"flattensteps", "true"}}),
              AllOf(HasSubstr("SelectSteps"), HasSubstr("FlattenSteps")));
  EXPECT_EQ(settings_of({{"SelectSteps", ""}, {"FlattenSteps", "Off"}, {"CompressionMethod", "NONE"}}).ignored.size(),
            3U);
}

TEST(EngineParameters, parameters_of_other_engines_are_ignored_in_any_case_and_told) {
  const Settings settings = settings_of({{"MARSHALMETHOD", "BP5"}, {"node-local", "true"}, {"S3SecretKey", "hush"}});
  const std::string notice = foreign_notice(settings, "run1/flow", false);
  EXPECT_THAT(notice, AllOf(HasSubstr("run1/flow ignores"), HasSubstr("MarshalMethod"), HasSubstr("Node-Local"),
                            HasSubstr("S3SecretKey"), Not(HasSubstr("hush"))));
  EXPECT_EQ(foreign_notice(settings_of({{"Retention", "all"}}), "run1/flow", true), "");
}

TEST(EngineParameters, queue_limit_with_discard_becomes_retention_of_a_new_stream) {
  const Settings settings = settings_of({{"queuelimit", "2"}, {"QueueFullPolicy", "discard"}});
  EXPECT_FALSE(settings.writer.retention);
  EXPECT_EQ(settings.retention_if_new->last, 2U);
  EXPECT_THAT(foreign_notice(settings, "run1/flow", true), HasSubstr("Retention=last:2"));
  EXPECT_EQ(foreign_notice(settings, "run1/flow", false), "");
  // ReserveQueueLimit is a lower bound.
  EXPECT_EQ(settings_of({{"QueueLimit", "2"}, {"QueueFullPolicy", "Discard"}, {"ReserveQueueLimit", "5"}})
                .retention_if_new->last,
            5U);
}

TEST(EngineParameters, queue_limit_gives_way_to_retention_and_zero_is_no_limit) {
  const Parameters discard{{"QueueLimit", "2"}, {"QueueFullPolicy", "Discard"}};
  EXPECT_FALSE(settings_of(discard, {{"FOREBAY_RETENTION", "last:7"}}).retention_if_new);
  Parameters unlimited = discard;
  unlimited["QueueLimit"] = "0";
  EXPECT_FALSE(settings_of(unlimited).retention_if_new);
  for (const auto& [name, value] :
       Parameters{{"QueueLimit", "few"}, {"QueueFullPolicy", "wait"}, {"FirstTimestepPrecious", "perhaps"}}) {
    EXPECT_THAT(error_of({{name, value}}), AllOf(HasSubstr(name), HasSubstr("\"" + value + "\"")));
  }
}

TEST(EngineParameters, queue_limit_with_block_which_is_the_default_becomes_a_lag_limit) {
  for (const Parameters& parameters :
       {Parameters{{"QueueLimit", "2"}}, Parameters{{"queuelimit", "2"}, {"QueueFullPolicy", "block"}}}) {
    const Settings settings = settings_of(parameters);
    EXPECT_EQ(settings.writer.lag_limit, 2U);
    EXPECT_FALSE(settings.retention_if_new);
    EXPECT_THAT(foreign_notice(settings, "run1/flow", true), HasSubstr("LagLimit=2"));
  }
  EXPECT_FALSE(settings_of({{"QueueLimit", "0"}}).writer.lag_limit);
  EXPECT_FALSE(settings_of({{"QueueLimit", "2"}, {"QueueFullPolicy", "Discard"}}).writer.lag_limit);
  // What is given wins, also where it says that nothing waits.
  EXPECT_EQ(settings_of({{"QueueLimit", "2"}, {"LagLimit", "0"}}).writer.lag_limit, 0U);
  const Settings given = settings_of({{"QueueLimit", "2"}}, {{"FOREBAY_LAG_LIMIT", "7"}});
  EXPECT_EQ(given.writer.lag_limit, 7U);
  EXPECT_THAT(foreign_notice(given, "run1/flow", true), HasSubstr("to nothing, because LagLimit is given"));
}

TEST(EngineParameters, first_timestep_precious_becomes_a_term_of_retention) {
  const Settings alone = settings_of({{"FirstTimestepPrecious", "true"}});
  EXPECT_EQ(alone.retention_if_new->first, 1U);
  EXPECT_TRUE(alone.retention_if_new->keeps_all());
  EXPECT_EQ(alone.retention_if_new->precious_every, 0U);
  EXPECT_THAT(foreign_notice(alone, "run1/flow", true), HasSubstr("Retention=all,first:1"));
  // As SST's alias InSituViz sets them.
  const Settings with_limit =
      settings_of({{"QueueLimit", "3"}, {"QueueFullPolicy", "Discard"}, {"FirstTimestepPrecious", "TRUE"}});
  EXPECT_EQ(to_string(*with_limit.retention_if_new), "last:3,first:1");
  EXPECT_FALSE(settings_of({{"FirstTimestepPrecious", "false"}}).retention_if_new);
  const Settings given = settings_of({{"FirstTimestepPrecious", "true"}, {"Retention", "last:7"}});
  EXPECT_FALSE(given.retention_if_new);
  EXPECT_THAT(foreign_notice(given, "run1/flow", true), HasSubstr("to nothing, because Retention is given"));
}

TEST(EngineParameters, one_parameter_with_two_values_is_an_error) {
  EXPECT_THAT(error_of({{"Stream", "a/b"}, {"stream", "a/c"}}), AllOf(HasSubstr("a/b"), HasSubstr("a/c")));
  EXPECT_EQ(settings_of({{"Stream", "a/b"}, {"stream", "a/b"}}).stream, "a/b");
}

TEST(EngineParameters, nothing_stands_in_both_tables) {
  for (const std::string_view name : foreign_parameter_names())
    EXPECT_EQ(parameter_table().find("| `" + std::string(name) + "` |"), std::string::npos) << name;
  EXPECT_THAT(foreign_parameter_table(), HasSubstr("| `SelectSteps` | BP5 | refused |"));
}

// The names that the parsers of ADIOS2's engines know, collected from the sources of 2.8.0 to 2.12.1, but for the
// engine of plugins and what is the transport's. None may be an unknown parameter here.
TEST(EngineParameters, of_every_engine_from_adios2_2_8_to_2_12_are_known) {
  constexpr const char* names[] = {"AggregationType",
                                   "AggregatorRatio",
                                   "AlwaysProvideLatestTimestep",
                                   "AppID",
                                   "AppendAfterSteps",
                                   "AsyncOpen",
                                   "AsyncWrite",
                                   "BeginStepPollingFrequencySecs",
                                   "BufferChunkSize",
                                   "BufferGrowthFactor",
                                   "BufferVType",
                                   "BurstBufferDrain",
                                   "BurstBufferPath",
                                   "BurstBufferVerbose",
                                   "CPCommPattern",
                                   "CollectiveMetadata",
                                   "CombiningSteps",
                                   "CompressionMethod",
                                   "ControlInterface",
                                   "ControlModule",
                                   "ControlTransport",
                                   "DataFileTransport",
                                   "DataInterface",
                                   "DataTransport",
                                   "DirectIO",
                                   "DirectIOAlignBuffer",
                                   "DirectIOAlignOffset",
                                   "EnableWriterRerouting",
                                   "EngineMode",
                                   "FailOnEOF",
                                   "FirstTimestepPrecious",
                                   "FlattenSteps",
                                   "FloatAccuracy",
                                   "FlushStepsCount",
                                   "GrowthFactor",
                                   "H5ChunkDim",
                                   "H5ChunkVar",
                                   "H5ChunkVars",
                                   "H5CollectiveMPIO",
                                   "IPAddress",
                                   "IdleH5Writer",
                                   "IgnoreFlattenSteps",
                                   "InitialBufferSize",
                                   "IsRowMajor",
                                   "MarshalMethod",
                                   "MaxBufferSize",
                                   "MaxOpenFilesAtOnce",
                                   "MaxShmSize",
                                   "MaxStepBufferSize",
                                   "MetadataThreads",
                                   "MinDeferredSize",
                                   "Monitor",
                                   "NetworkInterface",
                                   "Node-Local",
                                   "NodeLocal",
                                   "NumAggregators",
                                   "NumSubFiles",
                                   "OneLevelGatherRankLimit",
                                   "OneLevelGatherRanksLimit",
                                   "OpenTimeoutSecs",
                                   "Port",
                                   "PreloadMode",
                                   "Profile",
                                   "ProfileUnits",
                                   "QueueFullPolicy",
                                   "QueueLimit",
                                   "ReaderShortCircuitReads",
                                   "RegistrationMethod",
                                   "RemoteDataPath",
                                   "RemoteGroup",
                                   "RemoteHost",
                                   "RendezvousReaderCount",
                                   "ReroutingThresholdFactor",
                                   "ReserveQueueLimit",
                                   "S3AccessKeyID",
                                   "S3Bucket",
                                   "S3DirectUploadThreshold",
                                   "S3Endpoint",
                                   "S3ObjectMode",
                                   "S3SecretKey",
                                   "S3SessionToken",
                                   "SelectSteps",
                                   "SpecAutoNodeThreshold",
                                   "SpeculativePreloadMode",
                                   "StatsBlockSize",
                                   "StatsLevel",
                                   "StepDistributionMode",
                                   "StreamReader",
                                   "StripeSize",
                                   "SubStreams",
                                   "TarInfo",
                                   "Threading",
                                   "Threads",
                                   "Tiers",
                                   "Timeout",
                                   "TransportMode",
                                   "UUID",
                                   "UseHttps",
                                   "UseOneTimeAttributes",
                                   "UseSelectiveMetadataAggregation",
                                   "VerifySSL",
                                   "WANDataTransport",
                                   "cachepath",
                                   "campaignstorepath",
                                   "exclude-dataset",
                                   "hostname",
                                   "include-dataset",
                                   "verbose"};
  for (const std::string name : names) {
    const bool own = parameter_table().find("| `" + name + "` |") != std::string::npos;
    EXPECT_TRUE(own || name == "verbose" || find_foreign_parameter(name) != nullptr) << name;
  }
}

TEST(EngineParameters, values_compare_without_case_but_names_of_consumers_do_not) {
  const Settings settings = settings_of({{"Retention", "Last:3,CONSUMERS:Viz+archive"},
                                         {"Start", "Latest"},
                                         {"WhenFull", "DROP-OLDEST"},
                                         {"Attributes", "first_step"}});
  EXPECT_EQ(settings.writer.retention->last, 3U);
  EXPECT_EQ(settings.writer.retention->consumers, (std::vector<std::string>{"Viz", "archive"}));
  EXPECT_EQ(settings.reader.start.kind, Start::Kind::latest);
  EXPECT_EQ(settings.writer.when_full, WhenFull::drop_oldest);
  EXPECT_FALSE(settings.attributes_each_step);
  EXPECT_THAT(error_of({{"Retention", "last:3,"}}), HasSubstr("last:3,"));
}

TEST(EngineParameters, malformed_values_are_errors_that_say_what_is_expected) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"Ranks", "0"},
                                                                                    {"Rank", "-1"},
                                                                                    {"Ranks", "two"},
                                                                                    {"OpenTimeoutSecs", "60s"},
                                                                                    {"OpenTimeoutSecs", "nan"},
                                                                                    {"Force", "perhaps"},
                                                                                    {"WhenFull", "wait"},
                                                                                    {"Retention", "some"},
                                                                                    {"Start", "middle"},
                                                                                    {"Consumer", "a b"},
                                                                                    {"AppendAfterSteps", "1.5"},
                                                                                    {"AppendAfter", "-1"},
                                                                                    {"LagLimit", "-1"},
                                                                                    {"StatsLevel", ""}}) {
    EXPECT_THAT(error_of({{name, value}}), AllOf(HasSubstr(name), HasSubstr("\"" + value + "\""))) << name;
  }
}

TEST(EngineParameters, address_comes_from_the_stream_or_from_a_plugin_name_that_is_one) {
  EXPECT_EQ(stream_address(settings_of({{"Stream", "run1/flow"}}), "other/name", {}).path(), "run1/flow");
  EXPECT_EQ(stream_address(settings_of({}), "forebay://run1/flow", {}).path(), "run1/flow");
  EXPECT_EQ(stream_address(settings_of({{"Stream", "run1/flow@17"}}), "x", {}).step, 17U);
  EXPECT_THROW(stream_address(settings_of({}), "forebay", {}), std::invalid_argument);
  EXPECT_THROW(stream_address(settings_of({{"Stream", "flow"}}), "run1/flow", {}), std::invalid_argument);
}

TEST(EngineParameters, address_with_a_placeholder_takes_the_name_that_is_opened) {
  const Settings settings = settings_of({{"Stream", "run1/{name}"}});
  EXPECT_EQ(stream_address(settings, "x", "out/gs.bp").path(), "run1/gs");
  EXPECT_EQ(stream_address(settings_of({{"Stream", "run1/{path}"}}), "x", "out/gs.bp").path(), "run1/out__gs");
  EXPECT_THROW(stream_address(settings, "x", {}), std::invalid_argument);
}

TEST(EngineParameters, a_ticket_stands_for_the_address_in_it) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/step.forebay";
  std::ofstream(path) << R"({"forebay": "forebay://run1/flow@17", "uuid": "a", "epoch": 2})";
  for (const Ticket& ticket : {stream_ticket(settings_of({{"Stream", path}}), "x", {}),
                               stream_ticket(settings_of({}), path, {}), stream_ticket(settings_of({}), "x", path),
                               stream_ticket(settings_of({{"Stream", "other/{name}"}}), "x", path)}) {
    EXPECT_EQ(ticket.address.path(), "run1/flow");
    EXPECT_EQ(ticket.address.step, 17U);
    EXPECT_EQ(ticket.epoch, 2U);
  }
  // A stream that the parameters name counts, whatever the program opens.
  EXPECT_EQ(stream_address(settings_of({{"Stream", "run2/other"}}), "x", path).path(), "run2/other");
  EXPECT_EQ(original_name(settings_of({{"Stream", "other/{name}"}}), "x", path), "");
  std::ofstream(path) << "no ticket";
  EXPECT_THROW(stream_address(settings_of({{"Stream", path}}), "x", {}), std::invalid_argument);
}

TEST(EngineParameters, append_after_steps_counts_from_either_end) {
  EXPECT_EQ(steps_to_keep(3, 10), 3U);
  EXPECT_EQ(steps_to_keep(0, 10), 0U);
  EXPECT_EQ(steps_to_keep(std::numeric_limits<int>::max(), 10), 10U);
  EXPECT_EQ(steps_to_keep(-1, 10), 10U);
  EXPECT_EQ(steps_to_keep(-2, 10), 9U);
  EXPECT_EQ(steps_to_keep(-11, 10), 0U);
  EXPECT_EQ(steps_to_keep(-12, 10), 0U);
  EXPECT_EQ(steps_to_keep(std::numeric_limits<std::int64_t>::min(), 10), 0U);
  EXPECT_EQ(steps_to_keep(5, 0), 0U);
}

class EngineRank : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : variables) unsetenv(variable);
  }
  void TearDown() override { SetUp(); }
  static WriterOptions rank_of(const Parameters& parameters,
                               const std::optional<LauncherRank>& communicator = std::nullopt) {
    WriterOptions options;
    take_rank(settings_of(parameters), communicator, options);
    return options;
  }

  static ReaderOptions reader_rank_of(const Parameters& parameters,
                                      const std::optional<LauncherRank>& communicator = std::nullopt) {
    const Settings settings = settings_of(parameters);
    ReaderOptions options = settings.reader;
    take_reader_rank(settings, communicator, options);
    return options;
  }

  static constexpr const char* variables[] = {
      "FOREBAY_RANK",         "FOREBAY_RANKS",        "FOREBAY_GROUP", "PMI_RANK",     "PMI_SIZE",
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID",  "SLURM_NTASKS", "SLURM_STEP_ID"};
};

TEST_F(EngineRank, alone_without_parameters_or_launcher) {
  const WriterOptions options = rank_of({});
  EXPECT_EQ(options.rank, 0U);
  EXPECT_EQ(options.ranks, 1U);
}

TEST_F(EngineRank, parameters_win_over_the_launcher) {
  setenv("FOREBAY_RANK", "3", 1);
  setenv("FOREBAY_RANKS", "8", 1);
  setenv("FOREBAY_GROUP", "job7", 1);
  EXPECT_EQ(rank_of({}).rank, 3U);
  EXPECT_EQ(rank_of({}).ranks, 8U);
  EXPECT_EQ(rank_of({}).group, "job7");
  EXPECT_EQ(rank_of({{"Rank", "1"}, {"Ranks", "2"}}).rank, 1U);
  EXPECT_EQ(rank_of({{"Rank", "1"}, {"Ranks", "2"}}).ranks, 2U);
  EXPECT_EQ(rank_of({{"Ranks", "4"}}).rank, 3U);
  EXPECT_EQ(rank_of({{"Group", "mine"}}).group, "mine");
}

TEST_F(EngineRank, one_rank_writes_alone_whatever_the_launcher_says) {
  setenv("FOREBAY_RANK", "3", 1);
  setenv("FOREBAY_RANKS", "8", 1);
  EXPECT_EQ(rank_of({{"Ranks", "1"}}).rank, 0U);
  EXPECT_EQ(rank_of({{"Ranks", "1"}}).ranks, 1U);
}

TEST_F(EngineRank, communicator_goes_between_forebays_variables_and_the_launcher) {
  const LauncherRank communicator{1, 3, "the program's MPI communicator", "mpi-1"};
  setenv("PMI_RANK", "5", 1);
  setenv("PMI_SIZE", "6", 1);
  EXPECT_EQ(rank_of({}).rank, 5U);
  EXPECT_EQ(rank_of({}, communicator).rank, 1U);
  EXPECT_EQ(rank_of({}, communicator).ranks, 3U);
  EXPECT_EQ(rank_of({}, communicator).group, "mpi-1");
  EXPECT_EQ(rank_of({{"Ranks", "1"}}, communicator).rank, 0U);
  setenv("FOREBAY_GROUP", "job7", 1);
  EXPECT_EQ(rank_of({}, communicator).group, "job7");
  setenv("FOREBAY_RANK", "2", 1);
  EXPECT_THROW(rank_of({}, communicator), std::invalid_argument) << "FOREBAY_RANKS is missing";
  setenv("FOREBAY_RANKS", "4", 1);
  EXPECT_EQ(rank_of({}, communicator).ranks, 4U);
}

TEST_F(EngineRank, readers_that_follow_read_with_the_launchers_ranks) {
  setenv("PMI_RANK", "1", 1);
  setenv("PMI_SIZE", "2", 1);
  setenv("FOREBAY_GROUP", "job7", 1);
  const ReaderOptions reader = reader_rank_of({});
  EXPECT_EQ(reader.rank, 1U);
  EXPECT_EQ(reader.ranks, 2U);
  EXPECT_EQ(reader.group, "job7");
  EXPECT_EQ(reader_rank_of({{"StepDistributionMode", "AllToAll"}}).ranks, 2U);
  EXPECT_EQ(reader_rank_of({{"StepDistributionMode", "RoundRobin"}}).ranks, 1U);
  EXPECT_EQ(reader_rank_of({{"StepDistributionMode", "RoundRobin"}, {"Ranks", "2"}}).ranks, 2U);
  EXPECT_EQ(reader_rank_of({{"Follow", "false"}}).ranks, 1U);
  EXPECT_EQ(reader_rank_of({{"Ranks", "1"}}).ranks, 1U);
  unsetenv("PMI_SIZE");
  EXPECT_EQ(reader_rank_of({}).ranks, 1U);
}

TEST_F(EngineRank, readers_on_a_communicator_ask_it_alone) {
  setenv("FOREBAY_RANK", "3", 1);
  setenv("FOREBAY_RANKS", "8", 1);
  const LauncherRank self{0, 1, "the program's MPI communicator", {}};
  EXPECT_EQ(reader_rank_of({}, self).ranks, 1U) << "MPI_COMM_SELF reads alone";
  const LauncherRank both{1, 2, "the program's MPI communicator", "mpi-1-2"};
  EXPECT_EQ(reader_rank_of({}, both).rank, 1U);
  EXPECT_EQ(reader_rank_of({{"Follow", "false"}}, both).ranks, 2U);
  EXPECT_EQ(reader_rank_of({}, both).group, "mpi-1-2");
}

TEST_F(EngineRank, impossible_numbers_are_refused) {
  EXPECT_THROW(rank_of({{"Rank", "2"}, {"Ranks", "2"}}), std::invalid_argument);
  EXPECT_THROW(rank_of({{"Ranks", "4"}}), std::invalid_argument);
  EXPECT_THROW(rank_of({{"Rank", "1"}}), std::invalid_argument);
}

TEST(EngineParameters, table_has_a_row_and_an_environment_variable_for_each) {
  const std::string table = parameter_table();
  EXPECT_THAT(table, HasSubstr("| `OpenTimeoutSecs` | seconds | 60 | both |"));
  EXPECT_THAT(table, HasSubstr("`FOREBAY_ALWAYS_PROVIDE_LATEST_TIMESTEP`"));
}

}  // namespace
}  // namespace forebay::engine
