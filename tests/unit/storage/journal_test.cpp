// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>

#include "base/checksum.h"
#include "storage/framing.h"
#include "tests/unit/storage/journal_fixture.h"
#include "tests/unit/storage/seal_frame.h"

namespace forebay::storage {
namespace {

using Bodies = std::vector<std::string>;
using Names = std::vector<std::string>;
using testing::FaultyDevice;
using testing::Operation;

TEST_F(JournalTest, records_come_back_in_order_without_a_sync) {
  {
    auto journal = created("first");
    append(*journal, "a", RecordType::group_formed);
    append(*journal, "", RecordType::durable_to);
    append(*journal, std::string(100'000, 'x'));
  }
  auto again = opened();
  ASSERT_TRUE(again.journal);
  EXPECT_EQ(again.seen, (std::vector<SeenRecord>{{RecordType::checkpoint, "first"},
                                                 {RecordType::group_formed, "a"},
                                                 {RecordType::durable_to, ""},
                                                 {RecordType::step_committed, std::string(100'000, 'x')}}));
  EXPECT_EQ(again.recovery.records, 4U);
  EXPECT_EQ(again.recovery.bytes_cut, 0U);
  EXPECT_FALSE(again.recovery.damaged);
}

TEST_F(JournalTest, appending_goes_on_after_reopening) {
  {
    append(*created(), "a");
  }
  {
    auto again = opened();
    append(**again.journal, "b");
  }
  EXPECT_EQ(opened().bodies(), (Bodies{"checkpoint", "a", "b"}));
}

TEST_F(JournalTest, creating_over_a_journal_is_refused) {
  created();
  auto second = Journal::create(posix_device(), directory(), bytes_of("x"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::already_exists);
}

TEST_F(JournalTest, an_empty_directory_has_no_journal) {
  auto none = opened();
  ASSERT_FALSE(none.journal);
  EXPECT_EQ(none.journal.error().code, ErrorCode::not_found);
}

TEST_F(JournalTest, an_unfinished_first_file_is_no_journal_and_creating_replaces_it) {
  write_file(temporary_.path(".journal.1.new"), {'x'});
  EXPECT_EQ(opened().journal.error().code, ErrorCode::not_found);
  created();
  EXPECT_EQ(names(), (Names{"journal.1"}));
}

TEST_F(JournalTest, rolling_leaves_one_file_that_begins_with_the_checkpoint) {
  {
    auto journal = created();
    append(*journal, "a");
    ASSERT_TRUE(journal->roll(bytes_of("all of it")));
    append(*journal, "b");
  }
  EXPECT_EQ(names(), (Names{"journal.2"}));
  EXPECT_EQ(opened().bodies(), (Bodies{"all of it", "b"}));
}

TEST_F(JournalTest, wants_a_checkpoint_after_growing_by_the_larger_of_growth_and_checkpoint) {
  auto journal = created(std::string(30'000, 'c'), {.growth_bytes = 10'000});
  append(*journal, std::string(29'000, 'x'));
  EXPECT_FALSE(journal->wants_checkpoint());
  append(*journal, std::string(2'000, 'x'));
  EXPECT_TRUE(journal->wants_checkpoint());
  ASSERT_TRUE(journal->roll(bytes_of("small")));
  append(*journal, std::string(9'000, 'x'));
  EXPECT_FALSE(journal->wants_checkpoint());
  append(*journal, std::string(1'000, 'x'));
  EXPECT_TRUE(journal->wants_checkpoint());
}

TEST_F(JournalTest, of_several_files_the_newest_counts_and_the_others_go) {
  {
    auto journal = created("one");
    append(*journal, "stale");
    const auto first = read_file(file(1));
    ASSERT_TRUE(journal->roll(bytes_of("two")));
    ASSERT_TRUE(journal->roll(bytes_of("three")));
    write_file(file(1), first);
  }
  write_file(temporary_.path(".journal.4.new"), {'x'});
  EXPECT_EQ(opened().bodies(), (Bodies{"three"}));
  EXPECT_EQ(names(), (Names{"journal.3"}));
}

TEST_F(JournalTest, files_with_other_names_are_left_alone) {
  created();
  const Names foreign = {"journal.01", "journal.", "journal.99999999999", "journal.2x", "notes"};
  for (const std::string& name : foreign) write_file(temporary_.path(name), {'x'});
  EXPECT_EQ(opened().bodies(), (Bodies{"checkpoint"}));
  EXPECT_EQ(names().size(), foreign.size() + 1);
}

TEST_F(JournalTest, a_newest_file_without_a_whole_checkpoint_is_corrupt_and_nothing_goes) {
  created();
  for (const std::vector<char>& bytes :
       {std::vector<char>{}, std::vector<char>(10, 'x'), std::vector<char>(65536, 0)}) {
    write_file(file(2), bytes);
    auto again = opened();
    ASSERT_FALSE(again.journal);
    EXPECT_EQ(again.journal.error().code, ErrorCode::corrupt);
    EXPECT_NE(again.journal.error().where.find("journal.2"), std::string::npos);
    EXPECT_EQ(names(), (Names{"journal.1", "journal.2"}));
  }
}

TEST_F(JournalTest, a_file_under_another_number_is_not_taken) {
  created();
  std::filesystem::rename(file(1), file(2));
  EXPECT_EQ(opened().journal.error().code, ErrorCode::corrupt);
}

TEST_F(JournalTest, each_file_has_a_salt_of_its_own) {
  const auto salt_of = [&](std::uint32_t number) {
    FrameHeader header;
    std::memcpy(&header, read_file(file(number)).data(), sizeof header);
    return header.salt;
  };
  auto journal = created();
  const std::uint32_t first = salt_of(1);
  ASSERT_TRUE(journal->roll(bytes_of("next")));
  EXPECT_NE(salt_of(2), first);
}

/// Puts a record of the given type and version behind the checkpoint.
void forge_record(const std::string& path, std::uint16_t type, std::uint16_t version, std::uint64_t at) {
  auto file = posix_device().open(path, OpenMode::read_write);
  std::vector<std::byte> bytes(*(*file)->size());
  ASSERT_TRUE((*file)->read_at(0, bytes));
  FrameHeader first;
  std::memcpy(&first, bytes.data(), sizeof first);
  std::vector<std::byte> frame;
  encode_frame({.type = type, .sequence = 1, .file = first.file, .salt = first.salt}, {}, frame);
  if (version != frame_version) {
    std::memcpy(frame.data() + offsetof(FrameHeader, version), &version, sizeof version);
    seal_frame(frame);
  }
  ASSERT_TRUE((*file)->write_at(at, frame));
}

TEST_F(JournalTest, records_of_another_version_are_refused_by_name_and_left) {
  created("");
  for (const auto& [type, version] :
       {std::pair<int, int>{static_cast<int>(RecordType::MAX) + 1, frame_version}, {6, frame_version + 1}, {6, 1}}) {
    forge_record(file(1), static_cast<std::uint16_t>(type), static_cast<std::uint16_t>(version), frame_bytes(0));
    const auto before = read_file(file(1));
    auto again = opened();
    ASSERT_FALSE(again.journal);
    EXPECT_EQ(again.journal.error().code, ErrorCode::unsupported);
    EXPECT_NE(again.journal.error().what.find("another version of Forebay"), std::string::npos);
    EXPECT_EQ(read_file(file(1)), before);
  }
}

TEST_F(JournalTest, a_second_checkpoint_in_a_file_is_corrupt) {
  created("");
  forge_record(file(1), static_cast<std::uint16_t>(RecordType::checkpoint), frame_version, frame_bytes(0));
  EXPECT_EQ(opened().journal.error().code, ErrorCode::corrupt);
}

TEST_F(JournalTest, an_error_of_the_visitor_names_the_place_and_changes_nothing) {
  {
    auto journal = created("one");
    ASSERT_TRUE(journal->roll(bytes_of("two")));
    append(*journal, "bad");
  }
  write_file(file(1), {'x'});
  JournalRecovery recovery;
  const auto refuse = [](RecordType type, std::span<const std::byte>) -> Result<void> {
    if (type == RecordType::checkpoint) return {};
    return fail(ErrorCode::corrupt, "contradiction");
  };
  auto again = Journal::open(posix_device(), directory(), refuse, recovery);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().what, "contradiction");
  EXPECT_NE(again.error().where.find("journal.2 @ 40"), std::string::npos) << again.error().where;
  EXPECT_EQ(names(), (Names{"journal.1", "journal.2"}));
}

TEST_F(JournalTest, a_failed_sync_is_final) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device(limbo.path());
  auto journal = *Journal::create(device, directory(), bytes_of("checkpoint"));
  append(*journal, "a");
  device.fail_at(Operation::sync, 1);
  const auto synced = journal->sync();
  ASSERT_FALSE(synced);
  EXPECT_EQ(synced.error().code, ErrorCode::io_error);
  const auto syncs = device.operations(Operation::sync);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(journal->sync().error().code, ErrorCode::failed);
    EXPECT_EQ(journal->append(RecordType::durable_to, bytes_of("b")).error().code, ErrorCode::failed);
    EXPECT_EQ(journal->roll(bytes_of("c")).error().code, ErrorCode::failed);
  }
  EXPECT_EQ(device.operations(Operation::sync), syncs);
  EXPECT_EQ(opened().bodies(), (Bodies{"checkpoint", "a"}));
}

TEST_F(JournalTest, a_failed_write_is_final) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device(limbo.path());
  auto journal = *Journal::create(device, directory(), bytes_of("checkpoint"));
  append(*journal, "a");
  device.fail_at(Operation::write, 1, ErrorCode::no_space);
  EXPECT_EQ(journal->append(RecordType::durable_to, bytes_of("b")).error().code, ErrorCode::io_error);
  EXPECT_EQ(journal->append(RecordType::durable_to, bytes_of("b")).error().code, ErrorCode::failed);
  EXPECT_EQ(journal->sync().error().code, ErrorCode::failed);
}

TEST_F(JournalTest, a_full_device_refuses_the_record_and_the_journal_goes_on_when_there_is_space) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device(limbo.path());
  auto journal = *Journal::create(device, directory(), bytes_of("checkpoint"));
  device.set_full(true);
  // What is allocated already can be used, but for the last 16 KiB.
  const std::string small(1000, 's');
  Bodies expected{"checkpoint"};
  Result<void> appended;
  while ((appended = journal->append(RecordType::step_committed, bytes_of(small)))) expected.push_back(small);
  EXPECT_GT(expected.size(), 60U);
  EXPECT_EQ(appended.error().code, ErrorCode::no_space);
  EXPECT_EQ(journal->append(RecordType::step_committed, bytes_of(small)).error().code, ErrorCode::no_space);
  EXPECT_TRUE(journal->sync());
  device.set_full(false);
  append(*journal, "after");
  expected.push_back("after");
  EXPECT_EQ(opened().bodies(), expected);
}

TEST_F(JournalTest, on_a_full_device_there_is_room_left_for_drops_and_the_end) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device(limbo.path());
  auto journal = *Journal::create(device, directory(), bytes_of("checkpoint"));
  device.set_full(true);
  Bodies expected{"checkpoint"};
  while (journal->append(RecordType::step_committed, bytes_of("step"))) expected.push_back("step");
  for (const RecordType type : {RecordType::steps_dropped, RecordType::durable_to, RecordType::group_ended}) {
    EXPECT_TRUE(journal->append(type, bytes_of(std::string(1000, 'e'))));
    expected.push_back(std::string(1000, 'e'));
  }
  EXPECT_EQ(journal->append(RecordType::step_committed, bytes_of("step")).error().code, ErrorCode::no_space);
  EXPECT_EQ(opened().bodies(), expected);
}

TEST_F(JournalTest, on_a_nearly_full_device_a_record_takes_no_more_than_it_needs) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device(limbo.path());
  auto journal = *Journal::create(device, directory(), bytes_of("checkpoint"));
  const std::uint64_t size = journal->size_bytes();
  device.fail_at(Operation::allocate, 1, ErrorCode::no_space);
  append(*journal, std::string(size, 'x'));
  EXPECT_LE(journal->size_bytes(), size + 2 * 4096 + 16'384) << "and what is left to drops and ends";
}

TEST_F(JournalTest, a_failed_roll_leaves_the_old_file_in_use) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  for (const Operation operation :
       {Operation::create, Operation::allocate, Operation::write, Operation::sync, Operation::rename}) {
    testing::TemporaryDirectory place = testing::TemporaryDirectory::in_memory();
    FaultyDevice device(limbo.path());
    auto journal = *Journal::create(device, place.path(), bytes_of("checkpoint"));
    append(*journal, "a");
    device.fail_at(operation, 1, ErrorCode::no_space);
    EXPECT_EQ(journal->roll(bytes_of("next")).error().code, ErrorCode::no_space);
    append(*journal, "b");
    EXPECT_TRUE(journal->sync());
    EXPECT_EQ(open_journal(posix_device(), place.path()).bodies(), (Bodies{"checkpoint", "a", "b"}));
    EXPECT_TRUE(journal->roll(bytes_of("next")));
    EXPECT_EQ(open_journal(posix_device(), place.path()).bodies(), (Bodies{"next"}));
  }
}

TEST_F(JournalTest, a_failed_roll_is_wanted_again_only_after_more_growth) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device(limbo.path());
  auto journal = *Journal::create(device, directory(), bytes_of("checkpoint"), {.growth_bytes = 10'000});
  append(*journal, std::string(11'000, 'x'));
  ASSERT_TRUE(journal->wants_checkpoint());
  device.set_full(true);
  ASSERT_FALSE(journal->roll(bytes_of("next")));
  append(*journal, std::string(9'000, 'x'));
  EXPECT_FALSE(journal->wants_checkpoint());
  append(*journal, std::string(1'000, 'x'));
  EXPECT_TRUE(journal->wants_checkpoint());
  device.set_full(false);
  ASSERT_TRUE(journal->roll(bytes_of("next")));
  append(*journal, std::string(11'000, 'x'));
  EXPECT_TRUE(journal->wants_checkpoint());
}

TEST_F(JournalTest, a_roll_whose_outcome_is_unknown_breaks_the_journal) {
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device(limbo.path());
  auto journal = *Journal::create(device, directory(), bytes_of("checkpoint"));
  device.fail_at(Operation::sync_directory, 1);
  EXPECT_EQ(journal->roll(bytes_of("next")).error().code, ErrorCode::io_error);
  EXPECT_EQ(journal->append(RecordType::durable_to, bytes_of("b")).error().code, ErrorCode::failed);
}

TEST_F(JournalTest, sync_runs_beside_appends_and_rolls) {
  auto journal = created("0", {.growth_bytes = 20'000});
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> syncs{0};
  std::thread syncing([&] {
    while (!done) {
      ASSERT_TRUE(journal->sync());
      ++syncs;
    }
  });
  Bodies expected{"0"};
  for (int i = 1; i <= 5000 || syncs < 3; ++i) {
    append(*journal, std::to_string(i));
    expected.push_back(std::to_string(i));
    if (journal->wants_checkpoint()) {
      ASSERT_TRUE(journal->roll(bytes_of(std::to_string(i))));
      expected = {std::to_string(i)};
    }
  }
  done = true;
  syncing.join();
  EXPECT_EQ(opened().bodies(), expected);
}

}  // namespace
}  // namespace forebay::storage
