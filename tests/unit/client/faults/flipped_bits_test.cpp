// SPDX-License-Identifier: Apache-2.0
// One bit of what lies on disk is another one when the server starts: in the journals, in the reservation's record, in
// the metadata of steps, in their data.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "storage/framing.h"
#include "tests/support/sweep_points.h"
#include "tests/unit/client/faults/told.h"
#include "tests/unit/client/numbered_content.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

using Bytes = std::vector<char>;

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
void flip(const std::string& path, std::uint64_t offset, unsigned bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ (1 << bit)));
}

enum class Where { journal, record, metadata, data };

/// A byte of a file: where it is, and the stream and the step that it belongs to, if there is one.
struct Spot {
  Where place = Where::record;
  std::string path;
  std::uint64_t offset = 0;
  std::string stream;
  std::uint64_t step = 0;
};

/// What must have become of a step.
enum class Fate {
  whole,
  corrupt,           ///< an error when it is read
  cut,               ///< not there
  whole_or_corrupt,  ///< there may be nothing at the spot that anybody reads
  whole_or_cut,      ///< the same
  whole_or_wrong,    ///< nobody has promised anything
  lost,              ///< whatever may be without its record, but not other data
};

/// By (epoch, number).
using Contents = std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t>;

class FlippedBits : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::off);
    ASSERT_OK(server_.start());
    ASSERT_OK(server_.create("res", std::uint64_t{8} << 20));
    write_streams();
    server_.stop();
    states_ = states_on_disk(server_.root());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(server_.root())) {
      const std::string path = entry.path();
      if (path.ends_with("/reservation")) reservation_ = entry.path().parent_path();
      if (entry.is_regular_file() && !is_segment(path)) small_files_[path] = read_file(path);
    }
    ASSERT_FALSE(reservation_.empty());
    files_ = files_below(reservation_);
  }
  void TearDown() override { log::set_level(log::Level::error); }

  /// Durable and committed steps, with and without checksums, withdrawn ones, and a cursor.
  void write_streams() {
    WriterOptions options;
    options.mode = WriteMode::append;
    options.durability = Durability::durable;
    write("flow", options, 3);
    options.checksums = false;
    write("raw", options, 2);
    options.checksums = true;
    options.retention = Retention{.last = 2, .consumers = {}, .precious_every = 0};
    write("recent", options, 4);
    options.retention.reset();
    write("tail", options, 2);
    options.durability = Durability::committed;
    write("tail", options, 2);
    options.append_after = 1;
    write("tail", options, 2);
    ReaderOptions consumer;
    consumer.consumer = "render";
    auto reader = Reader::open({"res", "flow", std::nullopt}, consumer);
    ASSERT_OK(reader);
    const auto next = (*reader)->next(10'000);
    ASSERT_OK(next);
    ASSERT_OK((*reader)->acknowledge(*next->step));
  }
  void write(const std::string& stream, const WriterOptions& options, int steps) {
    auto writer = Writer::open({"res", stream, std::nullopt}, options);
    ASSERT_OK(writer);
    for (int i = 0; i < steps; ++i) {
      ASSERT_OK((*writer)->begin_step());
      ASSERT_OK(put_content(**writer, ++content_));
      ASSERT_OK((*writer)->end_step());
      contents_[stream][{(*writer)->epoch(), (*writer)->current_step() - 1}] = content_;
    }
    ASSERT_OK((*writer)->close());
  }

  static bool is_segment(const std::string& path) { return path.find("/segments/") != std::string::npos; }
  std::string segment(std::uint32_t number) const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(reservation_ + "/segments"))
      paths.push_back(entry.path());
    std::ranges::sort(paths);
    return paths.at(number);
  }

  std::vector<Spot> bytes_of_journals() const {
    std::vector<Spot> spots;
    for (const auto& [path, bytes] : small_files_) {
      const auto at = path.find("/streams/");
      if (at == std::string::npos) continue;
      const std::string stream = std::filesystem::path(path).parent_path().filename();
      // All that is used, and a little of the zeros behind it.
      storage::FrameReader reader(std::as_bytes(std::span(bytes)), 1);
      while (reader.next()) {
      }
      const std::uint64_t end = std::min<std::uint64_t>(reader.position() + 64, bytes.size());
      for (std::uint64_t offset = 0; offset < end; ++offset) spots.push_back({Where::journal, path, offset, stream, 0});
    }
    return spots;
  }
  std::vector<Spot> bytes_of_metadata() const {
    std::vector<Spot> spots;
    for_parts([&](const std::string& stream, const journal::PartT& part, std::uint64_t step) {
      // What lies behind it in its place is nobody's.
      std::uint64_t left = part.metadata_bytes;
      for (const auto& extent : part.metadata) {
        const std::uint64_t length = std::min(left, extent.length());
        add(spots, {Where::metadata, segment(extent.segment()), extent.offset(), stream, step}, length, 1);
        left -= length;
      }
    });
    return spots;
  }
  /// Without the metadata.
  std::vector<Spot> bytes_of_data() const {
    std::vector<Spot> spots;
    for_parts([&](const std::string& stream, const journal::PartT& part, std::uint64_t step) {
      std::vector<Spot> all;
      for (const auto& extent : part.extents)
        add(all, {Where::data, segment(extent.segment()), extent.offset(), stream, step}, extent.length(), 61);
      std::erase_if(all, [&](const Spot& spot) {
        return std::ranges::any_of(part.metadata, [&](const auto& metadata) {
          return spot.path == segment(metadata.segment()) && spot.offset >= metadata.offset() &&
                 spot.offset < metadata.offset() + metadata.length();
        });
      });
      spots.insert(spots.end(), all.begin(), all.end());
    });
    return spots;
  }
  template <class Visit>
  void for_parts(const Visit& visit) const {
    for (const auto& [name, state] : states_) {
      for (const auto& [number, step] : state.steps) {
        for (const auto& part : step.committed.parts) visit(name, *part, number);
      }
    }
  }
  static void add(std::vector<Spot>& spots, Spot first, std::uint64_t length, std::uint64_t spacing) {
    const std::uint64_t begin = first.offset;
    for (std::uint64_t i = 0; i < length; i += spacing) {
      first.offset = begin + i;
      spots.push_back(first);
    }
  }

  /// Flips one bit at each of the spots (this run's share of them) and looks at what the server makes of it, in the
  /// same boot and after another one.
  void sweep_flips(const std::vector<Spot>& spots) {
    std::uint64_t flips = 0;
    damaged_ = 0;
    sweep_points(spots.size(), [&](std::uint64_t i) {
      for (const bool boot : {false, true}) {
        const Spot& spot = spots[i];
        const auto bit = static_cast<unsigned>((spot.offset + test_seed()) % 8);
        SCOPED_TRACE(fmt::format("{} @ {}, bit {}{}", spot.path, spot.offset, bit, boot ? ", after a boot" : ""));
        flip(spot.path, spot.offset, bit);
        if (boot) server_.take_for_another_boot();
        look(spot, boot);
        server_.stop();
        restore(spot, bit);
        ++flips;
      }
    });
    // Most bytes matter; where none did, the test would have missed its aim.
    if (!HasFailure()) {
      EXPECT_GE(2 * damaged_, flips);
    }
  }

  /// The stream as the records before the flipped byte tell it.
  storage::StreamState state_before(const Spot& spot) const {
    const Bytes& bytes = small_files_.at(spot.path);
    storage::FrameReader reader(std::as_bytes(std::span(bytes)), 1);
    storage::StreamState state;
    for (auto frame = reader.next(); frame; frame = reader.next()) {
      if (frame->offset + storage::frame_bytes(frame->body.size()) > spot.offset) break;
      EXPECT_TRUE(state.apply(static_cast<storage::RecordType>(frame->header.type), frame->body));
    }
    return state;
  }
  /// May steps of this stream be missing without a word? So they may if power loss could have taken their records.
  static bool may_be_cut(const Spot& spot, bool boot) {
    const Bytes bytes = read_file(spot.path);
    storage::FrameReader reader(std::as_bytes(std::span(bytes)), 1);
    while (reader.next()) {
    }
    const bool whole_follow = reader.end() == storage::FrameEnd::gap;
    return reader.position() > 0 && !(whole_follow && (!boot || reader.synced_bytes() > reader.position()));
  }

  Fate fate(const Spot& spot, bool boot, const storage::StreamState& before, const std::string& stream,
            std::uint64_t number) const {
    if (spot.stream != stream) return Fate::whole;
    const bool checksums = stream != "raw";
    const storage::StreamState& state = states_.at(stream);
    if (spot.place == Where::journal) {
      const auto known = before.steps.find(number);
      // Withdrawn since, or not committed yet.
      if (known == before.steps.end() || known->second.committed.epoch != state.steps.at(number).committed.epoch)
        return Fate::lost;
      // After a boot nobody can tell whether it is whole.
      if (boot && !checksums && number >= before.durable_next) return Fate::lost;
      return Fate::whole;
    }
    const bool cuts = boot && spot.step >= state.durable_next;
    if (number < spot.step || (number > spot.step && !cuts)) return Fate::whole;
    if (spot.place == Where::metadata) return cuts ? Fate::cut : Fate::corrupt;
    if (!checksums) return Fate::whole_or_wrong;
    return cuts ? Fate::whole_or_cut : Fate::whole_or_corrupt;
  }

  void look(const Spot& spot, bool boot) {
    const bool cut_allowed = spot.place == Where::journal && may_be_cut(spot, boot);
    const storage::StreamState before = spot.place == Where::journal ? state_before(spot) : storage::StreamState();
    ASSERT_OK(server_.start());
    auto admin = Admin::connect();
    ASSERT_OK(admin);
    const auto findings = (*admin)->audit(true);
    ASSERT_OK(findings);
    std::string problems;
    for (const Finding& finding : *findings) {
      if (finding.severity == Finding::Severity::problem) problems += finding.where + ": " + finding.what + "\n";
    }
    bool damage = !problems.empty();
    if (spot.place == Where::record) {
      look_for_reservation(problems);
    } else {
      for (const auto& [stream, contents] : contents_) {
        SCOPED_TRACE("stream " + stream);
        damage |= read_stream(stream, problems, cut_allowed,
                              [&](std::uint64_t number) { return fate(spot, boot, before, stream, number); });
      }
    }
    damaged_ += damage ? 1 : 0;
  }

  /// It is in quarantine, with all its files, and a problem says so.
  void look_for_reservation(const std::string& problems) const {
    EXPECT_FALSE(std::filesystem::exists(reservation_));
    std::vector<std::filesystem::path> kept;
    for (const auto& entry : std::filesystem::directory_iterator(server_.root() + "/quarantine"))
      kept.push_back(entry.path());
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(files_below(kept.front()), files_);
    EXPECT_NE(problems.find(std::filesystem::path(reservation_).filename()), std::string::npos) << problems;
    EXPECT_NE(problems.find(kept.front()), std::string::npos) << problems;
  }
  static std::set<std::string> files_below(const std::filesystem::path& directory) {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
      files.insert(entry.path().lexically_relative(directory));
    return files;
  }

  /// Expects of every step what must have become of it. True if anything is not as it was.
  template <class FateOf>
  bool read_stream(const std::string& stream, const std::string& problems, bool cut_allowed, const FateOf& fate_of) {
    ReaderOptions options;
    options.follow = false;
    options.open_timeout_ms = 0;
    auto reader = Reader::open({"res", stream, std::nullopt}, options);
    const Contents& contents = contents_.at(stream);
    bool damage = false;
    for (const auto& [number, state] : states_.at(stream).steps) {
      const Fate fate = fate_of(number);
      SCOPED_TRACE(fmt::format("step {}, fate {}", number, static_cast<int>(fate)));
      Result<std::uint64_t> content;
      std::uint32_t epoch = 0;
      bool cut = !reader;
      if (reader) {
        const auto step = (*reader)->step(number);
        if (step) {
          epoch = (*step)->epoch();
          content = content_of(**step);
        } else {
          content = fail(step.error());
          cut = step.error().code == ErrorCode::not_found || step.error().code == ErrorCode::step_gone;
        }
      } else {
        content = fail(reader.error());
      }
      const std::string text = content ? std::to_string(*content) : content.error().message();
      const bool whole = content && epoch == state.committed.epoch && *content == contents.at({epoch, number});
      const bool corrupt = !cut && !content && content.error().code == ErrorCode::corrupt &&
                           !content.error().what.ends_with("is not what was written");
      damage |= !whole;
      switch (fate) {
        case Fate::whole:
          EXPECT_TRUE(whole) << text;
          break;
        case Fate::corrupt:
          EXPECT_TRUE(corrupt) << text;
          EXPECT_FALSE(problems.empty());
          break;
        case Fate::cut:
          EXPECT_TRUE(cut) << text;
          break;
        case Fate::whole_or_corrupt:
          EXPECT_TRUE(whole || (corrupt && !problems.empty())) << text;
          break;
        case Fate::whole_or_cut:
          EXPECT_TRUE(whole || cut) << text;
          break;
        case Fate::whole_or_wrong:
          EXPECT_FALSE(cut) << text;
          break;
        case Fate::lost: {
          EXPECT_TRUE(whole || cut_allowed || !problems.empty()) << "lost without a word: " << text;
          // Steps that were withdrawn by a record which is lost may be there again.
          const auto written = contents.find({epoch, number});
          EXPECT_TRUE(cut || corrupt || (content && written != contents.end() && *content == written->second)) << text;
          break;
        }
      }
    }
    return damage;
  }

  void restore(const Spot& spot, unsigned bit) {
    // What could not be used was moved away whole.
    if (!std::filesystem::exists(reservation_)) {
      const std::string id = std::filesystem::path(reservation_).filename();
      for (const auto& entry : std::filesystem::directory_iterator(server_.root() + "/quarantine")) {
        if (entry.path().filename().string().find(id) == std::string::npos) continue;
        std::filesystem::rename(entry.path(), reservation_);
        break;
      }
    }
    if (is_segment(spot.path)) flip(spot.path, spot.offset, bit);
    for (const auto& [path, bytes] : small_files_) write_file(path, bytes);
  }

  ServerOnDisk server_;
  std::uint64_t content_ = 0;
  std::map<std::string, Contents> contents_;  // by stream
  std::map<std::string, storage::StreamState> states_;
  std::map<std::string, Bytes> small_files_;  // all but segments, as the server left them
  std::string reservation_;                   // its folder
  std::set<std::string> files_;               // in there
  std::uint64_t damaged_ = 0;                 // flips after which something was not as before
};

// crash-matrix: a bit flips in a journal | any byte of it, found when the server starts | every step whose commit lies before it, byte for byte (without checksums, after a boot: if what makes it durable does, too), and all other streams; what is lost is reported, unless it could not be told from a record in writing or from what power loss takes
TEST_F(FlippedBits, in_a_journal_are_noticed) {
  sweep_flips(bytes_of_journals());
}

// crash-matrix: a bit flips in a reservation's record | any byte of it, found when the server starts | the reservation's folder with all its files, moved to quarantine, and a problem that names both
TEST_F(FlippedBits, in_a_reservations_record_are_noticed) {
  std::vector<Spot> spots;
  for (std::uint64_t offset = 0; offset < small_files_.at(reservation_ + "/reservation").size(); ++offset)
    spots.push_back({Where::record, reservation_ + "/reservation", offset, {}, 0});
  sweep_flips(spots);
}

// crash-matrix: a bit flips in a step's metadata | any byte of it, of all steps | all other steps, byte for byte; reading this one is an error, and the audit reports it; after a boot the stream is cut there where it was not durable
TEST_F(FlippedBits, in_the_metadata_of_a_step_are_noticed) {
  sweep_flips(bytes_of_metadata());
}

// crash-matrix: a bit flips in a step's data | every 61st byte of it, of all steps | all other steps, byte for byte; this one is what was written, or reading it is an error which the audit reports too (without checksums nothing is promised of it); after a boot the stream is cut there where it was not durable
TEST_F(FlippedBits, in_the_data_of_a_step_are_noticed) {
  sweep_flips(bytes_of_data());
}

}  // namespace
}  // namespace forebay::testing
