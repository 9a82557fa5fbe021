// SPDX-License-Identifier: Apache-2.0
// Writes inputs to start from, FOLDER/NAME_fuzz/*: what servers and clients really write and send, and for the fuzzers
// whose inputs are choices the courses of events that matter.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "protocol/step_metadata_builder.h"
#include "storage/framing.h"
#include "storage/journal.h"
#include "tests/fuzz/session_requests.h"
#include "tests/fuzz/session_script.h"
#include "tests/fuzz/sparse_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/storage/reservation_fixture.h"
#include "tests/unit/storage/stream_records.h"

namespace forebay::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;
using storage::RecordType;
using storage::StreamState;

class Folder {
 public:
  Folder(const std::string& root, const std::string& fuzzer) : path_(root + "/" + fuzzer) {
    std::filesystem::create_directories(path_);
  }
  void write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::string path_;
};

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
template <class Content>
void append(Bytes& bytes, const Content& content) {
  const auto more = std::as_bytes(std::span(content));
  for (const std::byte byte : more) bytes.push_back(std::to_integer<std::uint8_t>(byte));
}
Bytes with_first(std::uint8_t first, const Bytes& rest) {
  Bytes bytes{first};
  append(bytes, rest);
  return bytes;
}

/// One record of each kind, as a stream's life brings them.
std::vector<std::pair<RecordType, std::vector<std::byte>>> life_of_a_stream() {
  std::vector<std::pair<RecordType, std::vector<std::byte>>> records;
  StreamState state = StreamState::fresh(storage::test_uuid, "flow", 99);
  const auto add = [&](auto record) {
    records.emplace_back(storage::record_type_of<decltype(record)>, storage::body_of(record));
    if (!state.apply(std::move(record))) throw std::runtime_error("a seed's record is refused");
  };
  add(storage::checkpoint_of(state));
  add(storage::group_formed(state, 1, 2));
  add(journal::SegmentsOwnedT{.incarnation = 1, .rank = 1, .segments = {0, 1, 2}});
  add(journal::RetentionSetT{.retention = "last:3,precious:2"});
  for (int i = 0; i < 5; ++i) add(storage::step_committed(state));
  add(journal::CursorMovedT{.consumer = "viz", .epoch = 1, .position = 3});
  add(journal::DurableToT{.step = 3, .epoch = 1});
  add(journal::PreciousSetT{.steps = {1, 2}, .precious = true});
  add(journal::StepsStagedT{.steps = {1}, .epoch = 1, .receipt = "receipt"});
  journal::StepsDroppedT dropped;
  dropped.ranges.emplace_back(0, 1);
  add(dropped);
  journal::StepsLostT lost;
  lost.steps.emplace_back(1, 2);
  add(lost);
  add(journal::StepsWithdrawnT{.first = 4, .epoch = 2});
  add(storage::step_committed(state));
  add(journal::RankClosedT{.incarnation = 1, .rank = 1});
  add(journal::GroupEndedT{.incarnation = 1, .status = 3, .text = "rank 0 was lost", .time_ns = 100});
  add(journal::CursorRemovedT{.consumer = "viz"});
  auto again = storage::group_formed(state, 2, 1);
  again.withdraws_from = 3;
  again.next_step = 3;
  again.epoch = 3;
  add(again);
  add(storage::step_committed(state));
  add(journal::SegmentsLeftT{.segments = {2}});
  add(journal::StreamFailedT{.text = "a sync failed"});
  add(storage::checkpoint_of(state));
  return records;
}

void write_storage(const std::string& root) {
  const testing::TemporaryDirectory directory;
  const auto records = life_of_a_stream();
  const auto checkpoint =
      std::span(reinterpret_cast<const std::uint8_t*>(records.front().second.data()), records.front().second.size());
  SparseDevice device;
  auto journal = storage::Journal::create(device, directory.path(), checkpoint);
  const Folder bodies(root, "journal_fuzz");
  Bytes life;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const auto& [type, body] = records[i];
    if (!(*journal)->append(type, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}))
      throw std::runtime_error("the journal takes no record");
    Bytes one{static_cast<std::uint8_t>(type), static_cast<std::uint8_t>(body.size()),
              static_cast<std::uint8_t>(body.size() >> 8)};
    append(one, body);
    append(life, one);
    bodies.write("record-" + std::to_string(i), one);
    bodies.write("life-to-" + std::to_string(i), life);
  }
  Bytes file = read_file(directory.path("journal.1"));
  file.resize((*journal)->size_bytes() < file.size() ? 8192 : std::min<std::size_t>(file.size(), 8192));
  const Folder frames(root, "framing_fuzz");
  frames.write("journal", with_first(0, file));
  Bytes identity;
  const auto body = storage::bytes_of_record(storage::reservation_record());
  std::vector<std::byte> frame;
  storage::encode_frame({.type = 1}, std::as_bytes(std::span(body)), frame);
  append(identity, frame);
  frames.write("identity", with_first(0, identity));
  frames.write("identity-body", with_first(1, with_first(static_cast<std::uint8_t>(body.size() / 8), body)));
}

void write_step_metadata(const std::string& root) {
  const Folder folder(root, "step_metadata_fuzz");
  protocol::StepMetadataBuilder builder;
  const std::uint64_t shape[] = {100, 200};
  const std::uint64_t start[] = {0, 0};
  const std::uint64_t count[] = {50, 200};
  const format::Piece pieces[] = {{1, 0, 0, 8192, 40960}, {2, 0, 0, 0, 39040}};
  const std::uint64_t few[] = {4};
  const format::Piece small[] = {{1, 0, 0, 64, 16}};
  const double time = 0.5;
  for (int what = 0; what < 8; ++what) {
    builder.begin(3, (what & 1) == 0, (what & 2) == 0);
    builder.add_block({"temperature", DataType::float64, ShapeKind::global_array, 2, shape},
                      {start, count, pieces, 17, {}});
    builder.add_block({"local", DataType::float32, ShapeKind::local_array, 1, {}}, {{}, few, small, 2, {}});
    builder.set_value({"time", DataType::float64, ShapeKind::global_value, 0, {}}, std::as_bytes(std::span(&time, 1)));
    builder.set_value({"name", DataType::string, ShapeKind::local_value, 0, {}}, std::as_bytes(std::span("bed", 3)));
    protocol::Attributes attributes;
    attributes["unit"].strings = {"K"};
    attributes["list"] = {DataType::int32, true, std::vector<std::byte>(12), {}};
    const auto encoded = (what & 4) == 0 ? protocol::encode_attributes(attributes) : std::vector<std::uint8_t>();
    Bytes bytes;
    append(bytes, builder.encode(encoded));
    folder.write("step-" + std::to_string(what), bytes);
  }
}

void write_texts(const std::string& root) {
  const Folder folder(root, "text_fuzz");
  const auto write = [&](std::uint8_t kind, const std::string& name, const std::string& text) {
    folder.write(name, with_first(kind, Bytes(text.begin(), text.end())));
  };
  write(0, "address", "forebay://run1/flow");
  write(0, "address-step", "run1/flow@17");
  int number = 0;
  for (const char* retention : {"all", "last:3", "consumers:viz+render", "last:10,precious:5", "last:1,consumers:a"})
    write(1, "retention-" + std::to_string(number++), retention);
  for (const char* start : {"cursor", "oldest", "latest", "next", "12"}) write(2, std::string("start-") + start, start);
  write(3, "config",
        "# of a node\nroot = \"/local/forebay\"\nsocket = '/run/forebay.sock'\ncapacity_bytes = 800_000_000_000\n"
        "flush_interval_ms = 500\nrestart_grace_ms = 60_000\nlog_level = \"warning\"\n");
  write(3, "config-toml", "a.b = [1, 2.5, 1979-05-27T07:32:00Z]\n[[c]]\nd = {e = \"\"\"x\\u00e9\"\"\", f = 0xff}\n");
}

void write_root(const std::string& root) {
  const Folder texts(root, "text_fuzz");
  const auto write = [&](std::uint8_t kind, const std::string& name, const std::string& text) {
    texts.write(name, with_first(kind, Bytes(text.begin(), text.end())));
  };
  for (const char* pool : {"0", "800000000000", "18446744073709551615", "18446744073709551616", "-1", "1 GiB"})
    write(4, std::string("pool-") + pool, pool);
  const std::string boot = "f1b1a1f0-6a3b-4a1c-9d8e-2f6b7c8d9e0f";
  write(5, "boot", boot);
  write(5, "boot-unchecked",
        boot + "\n" + storage::test_uuid + "/flow\n" + storage::test_uuid + "/*\nother/aux/x\n/\n");
  write(5, "boot-filled", boot + "\nno line\n" + storage::test_uuid + "/flow\n\n\n\n");

  const Folder pins(root, "pins_fuzz");
  // Lines of readers that exist, have ended, are known by their process; then given, let go, given again.
  for (std::uint8_t options = 0; options < 16; ++options) {
    Bytes bytes{options, 6};
    for (std::uint8_t session = 0; session < 6; ++session) {
      if ((options & 1) == 0) {
        append(bytes, Bytes{session, 0, 3, 0, 0, 0, 0, 2, 36});
        continue;
      }
      std::uint64_t line[9] = {session, 7, 12345, std::uint64_t{1} << 32 | 77};
      std::memcpy(line + 4, storage::test_uuid, 36);
      append(bytes, std::span(line));
    }
    for (std::uint8_t session = 0; session < 4; ++session)
      append(bytes, Bytes{0, session, 0, 2, 0, session, 0, 3, 1, session, 0, 2, 7, 0, 0, 0, 0, session, 0, 2});
    append(bytes, Bytes{1, 3, 0, 3, 1, 2, 0, 2});
    pins.write("lines-" + std::to_string(options), bytes);
  }
}

void write_parameters(const std::string& root) {
  const Folder folder(root, "parameters_fuzz");
  int number = 0;
  for (const std::string text :
       {"Stream=run1/flow\nOpenTimeoutSecs=0.5\nWhenFull=drop-oldest\nRetention=last:3,precious:2\nForce=yes",
        "Rank=1\nRanks=2\nGroup=job.7\nDurability=durable\nAppendAfter=17\nAppendAfterSteps=-3",
        "PluginName=forebay://run1/flow\nConsumer=viz\nStart=12\nMinWatermark=durable\nVerify=first\nFollow=off",
        "FOREBAY_STREAM=run1/flow@3\nFOREBAY_OPEN_TIMEOUT_SECS=-1\nStepDistributionMode=RoundRobin\nRandomAccess=1",
        "GraceSecs=1e3\nBlockTimeoutSecs=0x1\nReconnectTimeoutSecs=nan\nStatsLevel=2\nChecksums=perhaps",
        "Ranks=1\nAttributes=first-step\nVariableFacts=no\nAlwaysProvideLatestTimestep=on\nRendezvousReaderCount=2",
        "QueueLimit=3\nBeginStepPollingFrequencySecs=1", "ranks=4294967295\nRank=4294967294\nSTREAM=a/b"})
    folder.write("io-" + std::to_string(number++), Bytes(text.begin(), text.end()));
}

/// One of each answer, for what clients read is as little to be trusted.
void write_answers(const Folder& folder) {
  const auto write = [&](MessageType type, const auto& object) {
    const auto body = protocol::pack(object);
    protocol::Header header;
    header.type = static_cast<std::uint16_t>(type);
    header.body_bytes = static_cast<std::uint32_t>(body.size());
    header.request = 1;
    Bytes message{0};
    append(message, std::span(&header, 1));
    append(message, std::span(body.data(), body.size()));
    folder.write(std::string("answer-") + wire::EnumNameMessageType(type), message);
  };
  wire::StepsAnswerT steps;
  steps.steps.emplace_back(3, 99, 8192, 1, 1, 1, true, false, true, 0);
  wire::StreamsAnswerT streams;
  streams.streams.push_back(std::make_unique<wire::StreamT>());
  streams.streams.front()->name = "flow";
  streams.streams.front()->committed = 3;
  streams.streams.front()->consumers.push_back(std::make_unique<wire::ConsumerT>());
  streams.awaited.push_back(std::make_unique<wire::AwaitedStreamT>());
  streams.awaited.front()->name = "later";
  streams.awaited.front()->waits.push_back(std::make_unique<wire::WaitT>());
  wire::ReservationsAnswerT reservations;
  reservations.reservations.push_back(std::make_unique<wire::ReservationT>());
  reservations.reservations.front()->name = "res";
  wire::AuditAnswerT audit;
  audit.findings.push_back(std::make_unique<wire::FindingT>());
  wire::SpaceGrantedT granted;
  granted.extents.emplace_back(1, 0, 0, 4096, 8192);
  granted.segments = {1};
  wire::CommittedT committed;
  committed.step = 3;
  committed.extents = granted.extents;
  wire::ReaderOpenedT reader;
  reader.uuid = storage::test_uuid;
  reader.lost_pins.emplace_back(3, 1, 0);
  wire::StepEventT event;
  event.kind = 1;
  event.step = std::make_unique<wire::StepDescriptorT>();
  event.step->summary = std::make_unique<wire::StepSummary>(steps.steps.front());
  event.step->parts.push_back(std::make_unique<wire::PartReferenceT>());
  event.step->parts.front()->metadata = granted.extents;
  event.segments = {1};
  wire::FailureT failure;
  failure.code = 3;
  failure.what = "no such stream";
  wire::WriterOpenedT writer;
  writer.uuid = storage::test_uuid;
  write(MessageType::welcome, wire::WelcomeT());
  write(MessageType::failure, failure);
  write(MessageType::done, wire::DoneT());
  write(MessageType::server_answer, wire::ServerAnswerT());
  write(MessageType::reservations_answer, reservations);
  write(MessageType::streams_answer, streams);
  write(MessageType::steps_answer, steps);
  write(MessageType::audit_answer, audit);
  write(MessageType::writer_opened, writer);
  write(MessageType::writer_rejoined, wire::WriterRejoinedT());
  write(MessageType::space_granted, granted);
  write(MessageType::committed, committed);
  write(MessageType::reader_opened, reader);
  write(MessageType::step_event, event);
  write(MessageType::segments_answer, wire::SegmentsAnswerT());
}

void write_messages(const std::string& root) {
  const Folder folder(root, "message_fuzz");
  Bytes all{0};
  // With plain choices and with others.
  for (std::uint8_t choice = 0; choice < 3; ++choice) {
    const Bytes choices(256, choice);
    Choices rest(choices);
    Slot slot;
    Requests requests(rest, slot);
    for (std::size_t kind = 0; kind < Requests::kinds; ++kind) {
      const Request request = requests.make(kind);
      protocol::Header header;
      header.type = static_cast<std::uint16_t>(request.type);
      header.body_bytes = static_cast<std::uint32_t>(request.body.size());
      header.request = static_cast<std::uint32_t>(kind);
      Bytes message{0};
      append(message, std::span(&header, 1));
      append(message, request.body);
      folder.write("message-" + std::to_string(choice) + "-" + std::to_string(kind), message);
      all.insert(all.end(), message.begin() + 1, message.end());
    }
  }
  folder.write("conversation", all);
  write_answers(folder);
}

void write_choices(const std::string& root) {
  const Folder sessions(root, "session_fuzz");
  int number = 0;
  for (const Bytes& script : session_scripts()) sessions.write("session-" + std::to_string(number++), script);
  const Folder journals(root, "recovery_fuzz");
  // Every kind of record after a group and two steps, with each combination of options, whole and damaged.
  for (std::uint8_t options = 0; options < 8; ++options) {
    for (std::uint8_t kind = 0; kind < 16; ++kind) {
      Bytes journal{options, 0, 0};
      for (int steps = 0; steps < 3; ++steps) append(journal, Bytes{16, 0});
      append(journal, Bytes{kind, 0});
      journals.write("journal-" + std::to_string(options) + "-" + std::to_string(kind), journal);
      append(journal, Bytes{static_cast<std::uint8_t>(224 + kind), 0x80, 1, 9, 4});
      journals.write("damaged-" + std::to_string(options) + "-" + std::to_string(kind), journal);
    }
  }
}

}  // namespace
}  // namespace forebay::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_fuzz_seeds FOLDER\n";
    return 2;
  }
  using namespace forebay::fuzz;
  write_storage(argv[1]);
  write_step_metadata(argv[1]);
  write_texts(argv[1]);
  write_root(argv[1]);
  write_parameters(argv[1]);
  write_messages(argv[1]);
  write_choices(argv[1]);
  return 0;
}
