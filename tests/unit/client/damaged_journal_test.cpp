// SPDX-License-Identifier: Apache-2.0
// A stream whose journal is damaged tells of steps that were dropped since: their space may be another stream's.
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/unit/client/numbered_content.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

constexpr std::uint64_t capacity_bytes = std::uint64_t{8} << 20;

class DamagedJournal : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::off);
    ASSERT_OK(server_.start());
    ASSERT_OK(server_.create("res", capacity_bytes));
  }
  void TearDown() override { log::set_level(log::Level::error); }

  void write(const std::string& stream, std::uint64_t first_content, int steps, Durability durability,
             std::optional<std::uint64_t> last = {}) {
    WriterOptions options;
    options.mode = WriteMode::append;
    options.durability = durability;
    if (last) options.retention = Retention{.last = last, .consumers = {}, .precious_every = 0};
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

// crash-matrix: a bit flips in a journal | any byte, of a stream whose dropped steps' space has gone to another stream since | every step of the other stream, byte for byte, in this boot and the next, and it can be written on
TEST_F(DamagedJournal, costs_another_stream_nothing) {
  // By its name the damaged stream comes first.
  write("before", 100, 4, Durability::durable, 1);
  write("later", 200, 3, Durability::durable);
  server_.stop();
  std::string journal;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server_.root())) {
    if (entry.is_regular_file() && entry.path().string().find("/streams/before/") != std::string::npos)
      journal = entry.path();
  }
  ASSERT_FALSE(journal.empty());
  std::ifstream file(journal, std::ios::binary);
  const std::vector<char> whole{std::istreambuf_iterator<char>(file), {}};
  std::size_t used = whole.size();
  while (used > 0 && whole[used - 1] == 0) --used;
  for (std::size_t at = 0; at < used; at += std::max<std::size_t>(1, used / 60)) {
    SCOPED_TRACE(fmt::format("byte {} of {}", at, used));
    std::vector<char> damaged = whole;
    damaged[at] ^= 0x10;
    std::ofstream(journal, std::ios::binary).write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
    for (const bool boot : {false, true, false}) {
      if (boot) server_.take_for_another_boot();
      ASSERT_OK(server_.start());
      check_healthy("later", 200, 3);
      server_.stop();
    }
    if (HasFailure()) return;
  }
  ASSERT_OK(server_.start());
  ballast_bytes_ = 0;
  write("later", 203, 1, Durability::committed);
  check_healthy("later", 200, 4);
}

}  // namespace
}  // namespace forebay::testing
