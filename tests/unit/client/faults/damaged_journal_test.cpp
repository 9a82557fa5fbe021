// SPDX-License-Identifier: Apache-2.0
// A stream whose journal is damaged tells of steps that were dropped since: their space may be another stream's.
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/support/sweep_points.h"
#include "tests/unit/client/numbered_content.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

constexpr std::uint64_t reservation_bytes = std::uint64_t{8} << 20;

class DamagedJournal : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::off);
    ASSERT_OK(server_.start());
    ASSERT_OK(server_.create("res", reservation_bytes));
  }
  void TearDown() override { log::set_level(log::Level::error); }

  void write(const std::string& stream, std::uint64_t first_content, int steps, Durability durability,
             const std::optional<Retention>& retention = {}) {
    WriterOptions options;
    options.mode = WriteMode::append;
    options.durability = durability;
    options.retention = retention;
    auto writer = Writer::open({"res", stream, std::nullopt}, options);
    ASSERT_OK(writer);
    Putting putting;
    putting.ballast_bytes = ballast_bytes_;
    for (int i = 0; i < steps; ++i) {
      ASSERT_OK((*writer)->begin_step());
      ASSERT_OK(put_content(**writer, first_content + static_cast<std::uint64_t>(i), putting));
      ASSERT_OK((*writer)->end_step());
    }
    ASSERT_OK((*writer)->close());
  }
  static void acknowledge_all(const std::string& stream, int steps) {
    ReaderOptions options;
    options.consumer = "render";
    auto reader = Reader::open({"res", stream, std::nullopt}, options);
    ASSERT_OK(reader);
    for (int i = 0; i < steps; ++i) {
      const auto next = (*reader)->next(10'000);
      ASSERT_OK(next);
      ASSERT_OK((*reader)->acknowledge(*next->step));
    }
  }
  /// The bytes of a stream's journal, whose tail of zeros is nobody's.
  std::vector<char> journal_of(const std::string& stream, std::string& path) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(server_.root())) {
      if (entry.is_regular_file() && entry.path().string().find("/streams/" + stream + "/") != std::string::npos)
        path = entry.path();
    }
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::size_t used_bytes(const std::vector<char>& journal) {
    std::size_t used = journal.size();
    while (used > 0 && journal[used - 1] == 0) --used;
    return used;
  }
  /// Flips a bit in each byte of the stream's journal in turn (this run's share of them); nothing of the other one may
  /// suffer.
  void sweep_flips(const std::string& stream, const std::string& other, int steps) {
    std::string path;
    const std::vector<char> whole = journal_of(stream, path);
    const std::size_t used = used_bytes(whole);
    ASSERT_GT(used, 0U);
    sweep_points(used, [&](std::uint64_t at) {
      SCOPED_TRACE(fmt::format("byte {} of {}", at, used));
      std::vector<char> damaged = whole;
      damaged[at] ^= static_cast<char>(1 << (at % 8));
      std::ofstream(path, std::ios::binary).write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
      ASSERT_OK(server_.start());
      check_healthy(other, 200, steps);
      server_.stop();
      std::ofstream(path, std::ios::binary).write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
      server_.take_for_another_boot();
      for (int start = 0; start < 2; ++start) {
        ASSERT_OK(server_.start());
        check_healthy(other, 200, steps);
        server_.stop();
      }
    });
  }
  /// All steps of the healthy stream, whose contents begin with this one.
  void check_healthy(const std::string& stream, std::uint64_t first_content, int steps) const {
    auto admin = Admin::connect();
    ASSERT_OK(admin);
    ReaderOptions options;
    options.follow = false;
    options.verify = Verify::read;
    options.open_timeout_ms = 0;
    auto reader = Reader::open({"res", stream, std::nullopt}, options);
    ASSERT_OK(reader);
    for (int i = 0; i < steps; ++i) {
      const auto step = (*reader)->step(static_cast<std::uint64_t>(i));
      ASSERT_OK(step);
      const auto content = content_of(**step);
      ASSERT_OK(content);
      EXPECT_EQ(*content, first_content + static_cast<std::uint64_t>(i));
    }
    std::string problems;
    const auto findings = (*admin)->audit(true);
    ASSERT_OK(findings);
    for (const Finding& finding : *findings) {
      if (finding.severity == Finding::Severity::problem) problems += finding.where + ": " + finding.what + "\n";
    }
    EXPECT_EQ(problems.find("res/" + stream), std::string::npos) << problems;
  }

  ServerOnDisk server_;
  std::uint64_t ballast_bytes_ = std::uint64_t{3} << 19;  // so that the streams cannot but use the same space
};

// crash-matrix: a bit flips in a journal | any byte of it, of a stream whose dropped steps' space has gone to another stream since | every step of the other stream, byte for byte, in this boot and the next, and after the last it is written on
TEST_F(DamagedJournal, costs_another_stream_nothing) {
  // By its name the damaged stream comes first.
  write("before", 100, 4, Durability::durable, Retention{.last = 1, .consumers = {}, .precious_every = 0});
  write("later", 200, 3, Durability::durable);
  server_.stop();
  sweep_flips("before", "later", 3);
  ASSERT_OK(server_.start());
  ballast_bytes_ = 0;
  write("later", 203, 1, Durability::committed);
  check_healthy("later", 200, 4);
}

// crash-matrix: a bit flips in a journal | the last records, which dropped steps whose space has gone to another stream since | every step of the other stream, byte for byte
TEST_F(DamagedJournal, that_lost_its_end_costs_another_stream_nothing) {
  write("before", 100, 4, Durability::durable, Retention{.last = {}, .consumers = {"render"}, .precious_every = 0});
  acknowledge_all("before", 4);
  write("later", 200, 3, Durability::durable);
  server_.stop();
  sweep_flips("before", "later", 3);
}

// crash-matrix: a journal that lost its end | server, dies at any operation of the next start, once in this boot and once in the next | every step of another stream, to which the space of steps had gone that the lost records dropped
TEST_F(DamagedJournal, that_lost_its_end_costs_another_stream_nothing_where_the_next_start_is_cut_short) {
  write("before", 100, 4, Durability::durable, Retention{.last = {}, .consumers = {"render"}, .precious_every = 0});
  acknowledge_all("before", 4);
  write("later", 200, 3, Durability::durable);
  server_.stop();
  std::string path;
  const std::vector<char> whole = journal_of("before", path);
  std::vector<char> cut = whole;
  cut.resize(used_bytes(cut) - 1);
  for (const bool boot : {false, true}) {
    std::uint64_t n = 1;
    for (;; ++n) {
      SCOPED_TRACE(fmt::format("operation {}, {}", n, boot ? "after a boot" : "in the same boot"));
      journal_of("before", path);
      std::filesystem::remove(path);
      std::ofstream(path.substr(0, path.rfind('/')) + "/journal.1", std::ios::binary)
          .write(cut.data(), static_cast<std::streamsize>(cut.size()));
      if (boot) server_.take_for_another_boot();
      server_.disk().stop_at(n);
      const bool started = server_.start().has_value();
      const bool whole_start = started && !server_.disk().stopped();
      server_.stop();
      server_.disk().reset();
      ASSERT_OK(server_.start());
      check_healthy("later", 200, 3);
      server_.stop();
      if (whole_start || HasFailure()) break;
    }
    EXPECT_TRUE(HasFailure() || n > 10) << n << ": so few operations of a start are counted";
  }
}

// crash-matrix: a journal that lost its end | the disk is full in the next start | every step of another stream, to which the space of steps had gone that the lost records dropped, in this start and the next
TEST_F(DamagedJournal, that_lost_its_end_costs_another_stream_nothing_on_a_full_disk) {
  write("before", 100, 4, Durability::durable, Retention{.last = {}, .consumers = {"render"}, .precious_every = 0});
  acknowledge_all("before", 4);
  write("later", 200, 3, Durability::durable);
  server_.stop();
  std::string path;
  std::vector<char> journal = journal_of("before", path);
  journal[used_bytes(journal) - 1] ^= 1;
  std::ofstream(path, std::ios::binary).write(journal.data(), static_cast<std::streamsize>(journal.size()));
  for (const bool full : {true, false}) {
    SCOPED_TRACE(full ? "full" : "with room again");
    server_.disk().set_full(full);
    ASSERT_OK(server_.start());
    check_healthy("later", 200, 3);
    const auto left = Admin::connect().value()->stream({"res", "before", std::nullopt});
    ASSERT_OK(left);
    EXPECT_EQ(left->status, StreamStatus::ended) << left->status_text;
    EXPECT_EQ(left->steps, 0U);
    server_.stop();
  }
}

// crash-matrix: a bit flips in a journal | some of the last bytes, of a stream whose dropped steps' space the open step of another stream's writer holds | that step, which is computed and ended after the restart
TEST_F(DamagedJournal, does_not_take_from_an_open_step) {
  server_.set_restart_grace_ms(60'000);
  // All but what one step of the other stream takes.
  const Dimensions shape{5 << 20};
  const Dimensions zeros{0};
  BlockSpec block;
  block.name = "computed";
  block.type = DataType::uint8;
  block.shape = shape;
  block.start = zeros;
  block.count = shape;
  for (const std::size_t round : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    const std::size_t from_end = 1 + round / 2 * 65;
    // Such a stream's last record dropped steps.
    const bool drops_last = round % 2 == 1;
    SCOPED_TRACE(fmt::format("{} bytes before the end, {}", from_end, drops_last ? "of drops" : "of an end"));
    Retention retention{.last = 1, .consumers = {}, .precious_every = 0};
    if (drops_last) retention = {.last = {}, .consumers = {"render"}, .precious_every = 0};
    write("before", 100, 4, Durability::durable, retention);
    if (drops_last) acknowledge_all("before", 4);
    auto writer = Writer::open({"res", "later", std::nullopt}, {});
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->begin_step());
    auto memory = (*writer)->allocate(block);
    ASSERT_OK(memory);
    ASSERT_OK(server_.restart(false, [&] {
      std::string path;
      std::vector<char> journal = journal_of("before", path);
      journal[used_bytes(journal) - from_end] ^= 1;
      std::ofstream(path, std::ios::binary).write(journal.data(), static_cast<std::streamsize>(journal.size()));
    }));
    std::ranges::fill(memory->bytes, std::byte{7});
    ASSERT_OK((*writer)->end_step());
    auto reader = Reader::open({"res", "later", std::nullopt}, {});
    ASSERT_OK(reader);
    const auto step = (*reader)->step(0);
    ASSERT_OK(step);
    ASSERT_OK((*step)->verify());
    server_.stop();
    TearDown();
    std::filesystem::remove_all(server_.root());
    SetUp();
  }
}

}  // namespace
}  // namespace forebay::testing
