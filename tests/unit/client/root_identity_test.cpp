// SPDX-License-Identifier: Apache-2.0
// A root has a uuid for good, and a storage incarnation that changes with a boot; parts record it, reservations name
// the root, and one that names another is left alone.
#include <fstream>

#include <gtest/gtest.h>

#include <forebay/address.h>
#include <forebay/admin.h>
#include <forebay/writer.h>

#include "storage/journal.h"
#include "storage/stream_state.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class RootIdentity : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(server_.start());
    ASSERT_OK(server_.create("res", std::uint64_t{8} << 20));
  }
  static ServerInfo server_info() { return *(*Admin::connect())->server(); }

  void write_step() {
    WriterOptions options;
    options.mode = WriteMode::append;
    options.durability = Durability::durable;
    auto writer = Writer::open(*parse_address("res/flow"), options);
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->begin_step());
    ASSERT_OK((*writer)->put_string("text", ShapeKind::global_value, "value"));
    ASSERT_OK((*writer)->end_step());
    ASSERT_OK((*writer)->close());
  }

  ServerOnDisk server_;
};

TEST_F(RootIdentity, stays_over_restarts_and_its_incarnation_changes_with_a_boot) {
  const ServerInfo first = server_info();
  EXPECT_EQ(first.uuid.size(), 36U);
  EXPECT_NE(first.storage_incarnation, 0U);
  write_step();
  ASSERT_OK(server_.restart(false));
  EXPECT_EQ(server_info().uuid, first.uuid);
  EXPECT_EQ(server_info().storage_incarnation, first.storage_incarnation);
  write_step();
  ASSERT_OK(server_.restart(true));
  const ServerInfo after_boot = server_info();
  EXPECT_EQ(after_boot.uuid, first.uuid);
  EXPECT_NE(after_boot.storage_incarnation, first.storage_incarnation);
  write_step();
  const std::string id = (*Admin::connect())->reservation("res")->id;
  ASSERT_OK(server_.flush_and_stop());

  storage::StreamState state;
  storage::JournalRecovery recovery;
  auto journal = storage::Journal::open(
      server_.disk(), server_.root() + "/reservations/" + id + "/streams/flow",
      [&](storage::RecordType type, std::span<const std::byte> body) { return state.apply(type, body); }, recovery, {});
  ASSERT_OK(journal);
  ASSERT_EQ(state.steps.size(), 3U);
  const auto incarnation_of = [&](std::uint64_t step) {
    return state.steps.at(step).committed.parts.front()->storage_incarnation;
  };
  EXPECT_EQ(incarnation_of(0), first.storage_incarnation);
  EXPECT_EQ(incarnation_of(1), first.storage_incarnation);
  EXPECT_EQ(incarnation_of(2), after_boot.storage_incarnation);
}

std::map<std::string, std::string> small_files(const std::string& root) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    found[entry.path().filename().string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return found;
}

TEST_F(RootIdentity, an_older_root_is_refused_by_name_and_left_as_it_was) {
  write_step();
  ASSERT_OK(server_.flush_and_stop());
  const std::string path = server_.root() + "/identity";
  // As roots were before their formats began again: without a mark, and before that without the file.
  std::ofstream(path) << "0b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d 0000000000000007\n";
  for (int age = 0; age < 2; ++age) {
    const auto before = small_files(server_.root());
    const auto started = server_.start();
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code, ErrorCode::unsupported);
    EXPECT_NE(started.error().message().find("choose another root"), std::string::npos) << started.error().message();
    EXPECT_EQ(small_files(server_.root()), before);
    std::filesystem::remove(path);
  }
}

TEST_F(RootIdentity, reservations_of_another_root_are_reported_and_left_alone) {
  write_step();
  ASSERT_OK(server_.flush_and_stop());
  const std::string path = server_.root() + "/identity";
  std::string own;
  std::getline(std::ifstream(path), own);
  std::ofstream(path) << "forebay-root-1 0b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d 0000000000000007\n";
  ASSERT_OK(server_.start());
  EXPECT_TRUE((*Admin::connect())->reservations()->empty());
  const auto findings = (*Admin::connect())->audit(false);
  ASSERT_OK(findings);
  ASSERT_EQ(findings->size(), 1U);
  EXPECT_NE(findings->front().what.find("belongs to root " + own.substr(15, 36)), std::string::npos)
      << findings->front().what;
  ASSERT_OK(server_.flush_and_stop());
  std::ofstream(path) << own << "\n";
  ASSERT_OK(server_.start());
  EXPECT_EQ((*Admin::connect())->steps(*parse_address("res/flow"))->size(), 1U);
  EXPECT_TRUE((*Admin::connect())->audit(true)->empty());
}

TEST_F(RootIdentity, that_cannot_be_read_stops_the_start) {
  ASSERT_OK(server_.flush_and_stop());
  std::ofstream(server_.root() + "/identity") << "forebay-root-1 nonsense\n";
  const auto started = server_.start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace forebay::testing
