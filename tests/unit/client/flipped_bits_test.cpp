// SPDX-License-Identifier: Apache-2.0
// One bit of what lies on disk is another one when the server starts: in the journals, in the reservation's record, in
// the metadata of steps, in their data.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "storage/framing.h"
#include "tests/support/randomness.h"
#include "tests/unit/client/numbered_content.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"
#include "tests/unit/client/told.h"

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

/// A byte of a file; for a journal's or a step's the stream that it belongs to.
struct Spot {
  std::string path;
  std::uint64_t offset = 0;
  std::string stream;
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
      for (std::uint64_t offset = 0; offset < end; ++offset) spots.push_back({path, offset, stream});
    }
    return spots;
  }
  std::vector<Spot> bytes_of_metadata() const {
    std::vector<Spot> spots;
    for (const auto& [name, state] : states_) {
      for (const auto& [number, step] : state.steps) {
        for (const auto& part : step.committed.parts) {
          for (const auto& extent : part->metadata) add_extent(spots, name, extent, 1);
        }
      }
    }
    return spots;
  }
  std::vector<Spot> bytes_of_steps() const {
    std::vector<Spot> spots;
    for (const auto& [name, state] : states_) {
      for (const auto& [number, step] : state.steps) {
        for (const auto& part : step.committed.parts) {
          for (const auto& extent : part->extents) add_extent(spots, name, extent, 61);
        }
      }
    }
    return spots;
  }
  void add_extent(std::vector<Spot>& spots, const std::string& stream, const journal::Extent& extent,
                  std::uint64_t stride) const {
    const std::string path = segment(extent.segment());
    for (std::uint64_t i = 0; i < extent.length(); i += stride) spots.push_back({path, extent.offset() + i, stream});
  }

  /// Flips one bit at each of about `count` of the spots, which the seed chooses, and looks at what the server makes of
  /// it, in the same boot and after another one.
  void flip_each(const std::vector<Spot>& spots, std::uint64_t count) {
    const std::uint64_t stride =
        std::max<std::uint64_t>(1, 2 * spots.size() / std::max<std::uint64_t>(1, test_count(count)));
    std::uint64_t flips = 0;
    for (std::uint64_t i = test_seed() % stride; i < spots.size() && !HasFailure(); i += stride) {
      for (const bool boot : {false, true}) {
        const Spot& spot = spots[i];
        const auto bit = static_cast<unsigned>((spot.offset + test_seed()) % 8);
        SCOPED_TRACE(fmt::format("FOREBAY_TEST_SEED={}: {} @ {}, bit {}{}", test_seed(), spot.path, spot.offset, bit,
                                 boot ? ", after a boot" : ""));
        flip(spot.path, spot.offset, bit);
        if (boot) server_.take_for_another_boot();
        look(spot, boot);
        server_.stop();
        restore(spot, bit);
        ++flips;
      }
    }
    std::cout << flips << " flips, every " << stride << " of " << spots.size() << " bytes.\n";
  }

  /// May steps of this stream be missing without a word? So they may if power loss could have taken them.
  bool may_be_cut(const Spot& spot, bool boot) const {
    if (is_segment(spot.path)) return boot;
    if (spot.path.find("/journal.") == std::string::npos) return false;
    const Bytes bytes = read_file(spot.path);
    storage::FrameReader reader(std::as_bytes(std::span(bytes)), 1);
    while (reader.next()) {
    }
    const bool whole_follow = reader.end() == storage::FrameEnd::gap;
    return reader.position() > 0 && !(whole_follow && (!boot || reader.synced_bytes() > reader.position()));
  }

  void look(const Spot& spot, bool boot) {
    const bool cut_allowed = may_be_cut(spot, boot);
    ASSERT_OK(server_.start());
    auto admin = Admin::connect();
    ASSERT_OK(admin);
    const auto findings = (*admin)->audit(true);
    ASSERT_OK(findings);
    const bool reported = std::ranges::any_of(
        *findings, [](const Finding& finding) { return finding.severity == Finding::Severity::problem; });
    for (const auto& [stream, contents] : contents_) {
      SCOPED_TRACE("stream " + stream);
      const bool hit = spot.stream.empty() || spot.stream == stream;
      ReaderOptions options;
      options.follow = false;
      options.open_timeout_ms = 0;
      options.verify = stream == "raw" ? Verify::none : Verify::read;
      auto reader = Reader::open({"res", stream, std::nullopt}, options);
      if (!reader) {
        EXPECT_TRUE(hit && reported) << "gone without a word: " << reader.error().message();
        continue;
      }
      read_steps(**reader, stream, contents, {hit, reported, hit && cut_allowed, hit && is_segment(spot.path)});
    }
  }

  struct Allowed {
    bool damage;          ///< errors when it is read
    bool reported;        ///< the audit says that something is wrong
    bool cut;             ///< also without a word
    bool wrong_raw_data;  ///< where there are no checksums
  };
  void read_steps(Reader& reader, const std::string& stream, const Contents& contents, const Allowed& allowed) {
    const auto steps = reader.steps();
    ASSERT_OK(steps);
    const auto& kept = states_.at(stream).steps;
    for (const auto& [number, state] : kept) {
      SCOPED_TRACE("step " + std::to_string(number));
      const auto step = reader.step(number);
      if (!step && (step.error().code == ErrorCode::not_found || step.error().code == ErrorCode::step_gone)) {
        EXPECT_TRUE(allowed.cut || (allowed.damage && allowed.reported)) << "missing without a word";
        continue;
      }
      if (!step) {
        EXPECT_TRUE(allowed.damage) << step.error().message();
        continue;
      }
      const auto content = content_of(**step);
      if (content) {
        // Steps that were withdrawn by a record which is lost are there again.
        const std::uint32_t epoch = (*step)->epoch();
        EXPECT_TRUE(epoch == state.committed.epoch || allowed.cut || (allowed.damage && allowed.reported)) << epoch;
        const auto written = contents.find({epoch, number});
        ASSERT_NE(written, contents.end()) << epoch;
        EXPECT_EQ(*content, written->second);
        continue;
      }
      EXPECT_TRUE(allowed.damage) << content.error().message();
      const bool wrong = content.error().what.ends_with("is not what was written");
      EXPECT_FALSE(wrong && !(stream == "raw" && allowed.wrong_raw_data)) << content.error().message();
    }
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
};

// crash-matrix: a bit flips in a journal | any byte, found when the server starts | every step before it, byte for byte; what is lost is reported, unless it could not be told from a record in writing or from what power loss takes
TEST_F(FlippedBits, in_a_journal_are_noticed) {
  flip_each(bytes_of_journals(), 300);
}

// crash-matrix: a bit flips in a reservation's record | any byte, found when the server starts | the reservation, moved to quarantine whole, and a problem that names it
TEST_F(FlippedBits, in_a_reservations_record_are_noticed) {
  std::vector<Spot> spots;
  for (std::uint64_t offset = 0; offset < small_files_.at(reservation_ + "/reservation").size(); ++offset)
    spots.push_back({reservation_ + "/reservation", offset, {}});
  flip_each(spots, 150);
}

// crash-matrix: a bit flips in a step's metadata | any byte | all other steps; this one is an error, never other data; after a boot it is cut where it was not durable
TEST_F(FlippedBits, in_the_metadata_of_a_step_are_noticed) {
  flip_each(bytes_of_metadata(), 300);
}

// crash-matrix: a bit flips in a step's data | any byte | all other steps; this one is an error where it is verified (nothing is promised without checksums); after a boot it is cut where it was not durable
TEST_F(FlippedBits, in_the_data_of_a_step_are_noticed) {
  flip_each(bytes_of_steps(), 200);
}

}  // namespace
}  // namespace forebay::testing
