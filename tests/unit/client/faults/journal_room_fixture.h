// SPDX-License-Identifier: Apache-2.0
// A reservation of which journals may take more than is kept for them, and what it takes on the device.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <forebay/admin.h>

#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {

/// Makes a journal of more than 1 MiB, of steps of one page each.
inline constexpr std::uint64_t steps_many = 9000;

class JournalRoom : public StreamTest {
 protected:
  void SetUp() override {
    // Tens of thousands of steps: all of them in each turn would take minutes.
    own_server_.set_checked_per_turn(4096);
    ASSERT_OK(own_server_.start());
    ASSERT_OK(own_server_.create("res", capacity()));
  }
  std::uint64_t capacity() const override { return 64 * mib; }

  static std::unique_ptr<Admin> admin() {
    auto connected = Admin::connect();
    EXPECT_TRUE(connected) << connected.error().message();
    return connected ? std::move(*connected) : nullptr;
  }

  /// What the reservation takes on the device.
  std::uint64_t taken_bytes(bool of_journals = false) const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(own_server_.root() + "/reservations")) {
      struct stat status{};
      if (of_journals && !entry.path().filename().string().starts_with("journal.")) continue;
      // A journal is renamed and removed meanwhile.
      if (::lstat(entry.path().c_str(), &status) == 0) bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
    return bytes;
  }
  /// Segments whose space has been given back to the device.
  std::size_t lent() const {
    std::size_t segments = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(own_server_.root() + "/reservations")) {
      struct stat status{};
      if (entry.path().parent_path().filename() != "segments" || ::lstat(entry.path().c_str(), &status) != 0) continue;
      if (static_cast<std::uint64_t>(status.st_blocks) * 512 < static_cast<std::uint64_t>(status.st_size)) ++segments;
    }
    return segments;
  }
  void check_capacity() const { EXPECT_LE(taken_bytes(), capacity()); }

  static void check_audit() {
    const auto findings = admin()->audit(true);
    ASSERT_OK(findings);
    for (const Finding& finding : *findings)
      EXPECT_NE(finding.severity, Finding::Severity::problem) << finding.where << ": " << finding.what;
  }

  static Result<void> try_step(Writer& writer, double value) {
    if (auto begun = writer.begin_step(); !begun) return fail(std::move(begun.error()));
    const BlockSpec block{"x", DataType::float64, ShapeKind::global_value, {}, {}, {}, {}, {}};
    if (auto put = writer.put(block, &value); !put) return put;
    return writer.end_step();
  }

  /// Writes small steps until it has that many or there is an error.
  Result<void> write_many(Writer& writer, std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps; ++step) {
      if (auto written = try_step(writer, static_cast<double>(step)); !written) return written;
      if (step % 500 == 0) check_capacity();
    }
    check_capacity();
    return {};
  }

  /// Calls does(rank) in a thread for each.
  template <class Does>
  static void each_rank(std::uint32_t ranks, const Does& does) {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&does, rank] { does(rank); });
  }
  std::vector<std::unique_ptr<Writer>> open_group(std::uint32_t ranks, const WriterOptions& options,
                                                  const std::string& stream) {
    std::vector<std::unique_ptr<Writer>> writers(ranks);
    each_rank(ranks, [&](std::uint32_t rank) {
      WriterOptions of_rank = options;
      of_rank.rank = rank;
      of_rank.ranks = ranks;
      writers[rank] = open_writer(of_rank, stream);
    });
    return writers;
  }
  static void write_group(std::vector<std::unique_ptr<Writer>>& writers, int steps) {
    each_rank(static_cast<std::uint32_t>(writers.size()), [&](std::uint32_t rank) {
      for (int step = 0; step < steps; ++step) {
        const auto written = try_step(*writers[rank], 1.0);
        ASSERT_TRUE(written) << written.error().message();
      }
    });
  }

  static std::uint64_t kept(const std::string& stream = "res/flow") {
    const auto info = admin()->stream(*parse_address(stream));
    EXPECT_TRUE(info) << info.error().message();
    return info ? info->steps : 0;
  }

  ServerOnDisk own_server_;
  FaultyDevice& disk_ = own_server_.disk();
};

}  // namespace forebay::testing
