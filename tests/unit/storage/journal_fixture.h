// SPDX-License-Identifier: Apache-2.0
// A journal in a directory of its own, with bodies that say which record they are.
#pragma once

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage/journal.h"
#include "tests/support/faulty_device.h"
#include "tests/support/temporary_directory.h"

namespace forebay::storage {

/// What a visitor saw.
struct SeenRecord {
  RecordType type;
  std::string body;
  bool operator==(const SeenRecord&) const = default;
};

inline std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

struct OpenedJournal {
  Result<std::unique_ptr<Journal>> journal = fail(ErrorCode::not_found, "not opened");
  JournalRecovery recovery;
  std::vector<SeenRecord> seen;

  std::vector<std::string> bodies() const {
    std::vector<std::string> all;
    for (const SeenRecord& record : seen) all.push_back(record.body);
    return all;
  }
};

inline OpenedJournal open_journal(Device& device, const std::string& directory, const JournalOptions& options = {}) {
  OpenedJournal opened;
  opened.journal = Journal::open(
      device, directory,
      [&](RecordType type, std::span<const std::byte> body) -> Result<void> {
        opened.seen.push_back({type, std::string(reinterpret_cast<const char*>(body.data()), body.size())});
        return {};
      },
      opened.recovery, options);
  return opened;
}

class JournalTest : public ::testing::Test {
 protected:
  std::string directory() const { return temporary_.path(); }
  std::string file(std::uint32_t number) const { return temporary_.path("journal." + std::to_string(number)); }

  std::unique_ptr<Journal> created(const std::string& checkpoint = "checkpoint", const JournalOptions& options = {}) {
    auto journal = Journal::create(posix_device(), directory(), bytes_of(checkpoint), options);
    EXPECT_TRUE(journal) << journal.error().message();
    return std::move(*journal);
  }
  OpenedJournal opened(const JournalOptions& options = {}) const {
    return open_journal(posix_device(), directory(), options);
  }

  static void append(Journal& journal, const std::string& body, RecordType type = RecordType::step_committed) {
    const auto appended = journal.append(type, bytes_of(body));
    EXPECT_TRUE(appended) << appended.error().message();
  }

  static std::vector<char> read_file(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static void write_file(const std::string& path, const std::vector<char>& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::vector<std::string> names() const { return *posix_device().list(directory()); }

  testing::TemporaryDirectory temporary_ = testing::TemporaryDirectory::in_memory();
};

}  // namespace forebay::storage
