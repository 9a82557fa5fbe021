// SPDX-License-Identifier: Apache-2.0
// The file of a whole journal, opened as after a crash or a boot: records that the input chooses, framed as they should
// be, then damage to the file's bytes. Opening gives the state of a prefix of the records or changes nothing on disk;
// what was opened can be opened again, added to and rolled. In half of the inputs a server finds the journal in a
// reservation: it starts, answers, and gets rid of the stream when asked.
//
// Input: a byte of options, then records: kind (1 byte), the number of its choices (1 byte) and these. Kinds from 224
// on are damage.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "staging-servers/streams/stream.h"
#include "storage/framing.h"
#include "storage/journal.h"
#include "tests/fuzz/record_choices.h"
#include "tests/fuzz/stepped_server.h"

namespace forebay::fuzz {
namespace {

using storage::bytes_of_state;
using storage::Journal;

constexpr std::size_t records_max = 100;
constexpr std::uint8_t first_damage = 224;
constexpr std::size_t choices_bytes_max = 64;

/// A journal's file, and the states that its records lead to.
class JournalFile {
 public:
  explicit JournalFile(Choices& choices) : state_(StreamState::fresh(storage::test_uuid, "flow", 99)) {
    append({RecordType::checkpoint, bytes_of_state(state_)}, 0);
    while (!choices.empty() && states_.size() < records_max) {
      const std::uint8_t kind = choices.byte();
      if (kind >= first_damage) {
        damage(choices, kind);
        continue;
      }
      Choices own(choices.bytes(choices.below(choices_bytes_max)));
      const Record record = RecordChoices(own, state_).make(kind % RecordChoices::kinds);
      if (kind % RecordChoices::kinds == RecordChoices::checkpoint_kind) begin();
      append(record, kind >= 200 ? bytes_.size() : std::uint64_t{0});
    }
  }

  const std::vector<std::byte>& bytes() const noexcept { return bytes_; }
  bool is_damaged() const noexcept { return damaged_; }
  bool is_refused() const noexcept { return refused_; }
  /// After the first `records` of them.
  const std::vector<std::byte>& state_after(std::uint64_t records) const {
    require(records > 0 && records <= states_.size(), "more records than there are");
    return states_[records - 1];
  }
  std::size_t records() const noexcept { return states_.size(); }

 private:
  /// Another file, which begins with the next record.
  void begin() {
    state_ = StreamState();
    sequence_ = 0;
    bytes_.clear();
    states_.clear();
    refused_ = damaged_ = false;
  }
  void append(const Record& record, std::uint64_t synced) {
    if (record.first == RecordType::none) return;
    std::vector<std::byte> frame;
    storage::encode_frame({.type = static_cast<std::uint16_t>(record.first),
                           .sequence = sequence_++,
                           .file = 1,
                           .salt = 7,
                           .synced_bytes = synced},
                          record.second, frame);
    bytes_.insert(bytes_.end(), frame.begin(), frame.end());
    // Behind a record that is refused nothing counts.
    if (refused_) return;
    const AlignedBytes body({reinterpret_cast<const std::uint8_t*>(record.second.data()), record.second.size()});
    const bool in_place = (record.first == RecordType::checkpoint) == states_.empty();
    if (!in_place || !state_.apply(record.first, body.get())) {
      refused_ = true;
      return;
    }
    states_.push_back(bytes_of_state(state_));
  }
  void damage(Choices& choices, std::uint8_t kind) {
    const std::size_t at = choices.raw(2) % bytes_.size();
    const std::size_t length = std::min<std::size_t>(std::size_t{choices.byte()} * 8 + 1, bytes_.size() - at);
    damaged_ = true;
    switch (kind % 4) {
      case 0:
        bytes_[at] ^= static_cast<std::byte>(1 + choices.below(255));
        break;
      case 1:
        std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), length, std::byte{0});
        break;
      case 2:
        bytes_.resize(std::max<std::size_t>(at, 1));
        break;
      default:
        // Whole records of another place, as a file of the same name may have left them.
        std::copy_n(bytes_.begin(), length, bytes_.begin() + static_cast<std::ptrdiff_t>(at));
        break;
    }
  }

  StreamState state_;
  std::uint32_t sequence_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<std::vector<std::byte>> states_;
  bool refused_ = false;
  bool damaged_ = false;
};

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// All files of a folder.
std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().string()].assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

struct Opened {
  Result<std::unique_ptr<Journal>> journal;
  storage::JournalRecovery recovery;
  StreamState state;
};

Opened open_journal(Device& device, const std::string& directory, bool same_boot) {
  Opened opened{.journal = fail(ErrorCode::failed, ""), .recovery = {}, .state = {}};
  storage::JournalOptions options;
  options.same_boot = same_boot;
  opened.journal = Journal::open(
      device, directory,
      [&opened](RecordType type, std::span<const std::byte> body) { return opened.state.apply(type, body); },
      opened.recovery, options);
  return opened;
}

Result<void> append_cursor(Opened& opened) {
  journal::CursorMovedT moved;
  moved.consumer = "viz";
  moved.epoch = opened.state.epoch;
  moved.position = opened.state.next_step;
  const auto body = protocol::pack(moved);
  if (auto appended = (*opened.journal)->append(RecordType::cursor_moved, {body.data(), body.size()}); !appended)
    return appended;
  return opened.state.apply(moved);
}

void open_alone(const JournalFile& file, std::uint8_t options) {
  static const testing::TemporaryDirectory directory = testing::TemporaryDirectory::in_memory();
  SparseDevice device;
  const bool same_boot = (options & 2) != 0;
  std::filesystem::remove_all(directory.path("flow"));
  std::filesystem::create_directory(directory.path("flow"));
  const std::string path = directory.path("flow");
  write_file(path + "/journal.1", file.bytes());
  if ((options & 4) != 0) write_file(path + "/.journal.2.new", std::span(file.bytes()).first(file.bytes().size() / 2));
  const auto before = contents(path);

  Opened opened = open_journal(device, path, same_boot);
  if (!opened.journal) {
    require(file.is_damaged() || file.is_refused(), opened.journal.error().what);
    require(contents(path) == before, "an opening that failed has changed something");
    return;
  }
  require(bytes_of_state(opened.state) == file.state_after(opened.recovery.records), "not the state of a prefix");
  if (!file.is_damaged()) require(opened.recovery.records == file.records() && !file.is_refused());
  if (opened.recovery.damaged) {
    require(contents(path) == before, "a damaged journal was changed");
    require(!append_cursor(opened), "a damaged journal takes records");
    return;
  }
  require(append_cursor(opened).has_value(), "the journal takes no record");
  opened.journal->reset();
  Opened again = open_journal(device, path, true);
  require(again.journal.has_value() && !again.recovery.damaged && again.recovery.bytes_cut == 0);
  require(bytes_of_state(again.state) == bytes_of_state(opened.state), "an appended record is missing");
  opened = std::move(again);
  const auto checkpoint = *opened.state.checkpoint_body();
  require((*opened.journal)->roll({checkpoint.data(), checkpoint.size()}).has_value());
  require(append_cursor(opened).has_value());
  opened.journal->reset();
  const Opened last = open_journal(device, path, true);
  require(last.journal.has_value() && bytes_of_state(last.state) == bytes_of_state(opened.state));
}

void open_in_server(const JournalFile& file, std::uint8_t options) {
  SteppedServer server(-1);
  require(server.start().has_value());
  reservation::ReservationT record;
  record.id = storage::test_uuid;
  record.name = "res";
  const auto layout = storage::layout_for(storage::capacity_bytes_min);
  record.capacity_bytes = layout->capacity_bytes;
  record.segment_bytes = record.stripe_bytes = layout->segment_bytes;
  record.journal_reserve_bytes = layout->journal_reserve_bytes;
  record.lifetime = 1;
  record.members.push_back(std::make_unique<reservation::MemberT>());
  record.members.front()->segments = layout->segments.front();
  record.members.front()->server = server.server().info().uuid;
  require(server.server().store().create(record).has_value());
  require(server.server().store().make_stream_directory(record.id, "flow").has_value());
  write_file(server.server().store().stream_directory(record.id, "flow") + "/journal.1", file.bytes());
  server.crash();
  if ((options & 2) == 0) server.pretend_boot();

  require(server.start().has_value());
  server.settle();
  server::Reservation& reservation = *server.server().reservations().all().at("res");
  const auto& stream = reservation.find_stream("flow");
  if (stream != nullptr && (options & 2) != 0 && !file.is_damaged()) {
    // The withdrawn steps are nobody's any more.
    StreamState expected;
    require(expected.apply(RecordType::checkpoint, file.state_after(file.records())).has_value());
    expected.retired.clear();
    // Consumers whose place was withdrawn get the steps to come.
    for (auto& [consumer, cursor] : expected.cursors) {
      if (cursor.position > expected.next_step && cursor.epoch < expected.epoch)
        cursor = {expected.epoch, expected.next_step};
    }
    StreamState now = stream->state();
    now.retired.clear();
    require(bytes_of_state(now) == bytes_of_state(expected), "not the state that the journal tells of");
  }
  // What was recovered is recovered again in the same way.
  if ((options & 4) != 0) {
    const auto before = stream == nullptr ? std::vector<std::byte>() : bytes_of_state(stream->state());
    server.crash();
    require(server.start().has_value());
    server.settle();
    server::Stream* again = server.server().reservations().all().at("res")->find_stream("flow");
    require((again == nullptr) == before.empty(), "a second recovery has another outcome");
    if (again != nullptr) require(bytes_of_state(again->state()) == before, "a second recovery has another state");
  }
  server::Reservation& last = *server.server().reservations().all().at("res");
  (void)server.has_problem();
  require(last.remove_stream("flow").has_value());
  server.settle();
  last.space().problems.clear();
  require(!server.has_problem(), server.problem());
  require(last.space().map().free_bytes() == last.space().map().total_bytes(), "space is lost with the stream");
}

}  // namespace
}  // namespace forebay::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::fuzz;
  Choices choices({data, size});
  const std::uint8_t options = choices.byte();
  const JournalFile file(choices);
  if (file.records() > 1) understood();
  if (options % 2 == 0) {
    open_alone(file, options);
  } else {
    open_in_server(file, options);
  }
  return 0;
}
