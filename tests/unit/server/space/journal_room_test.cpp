// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/space/journal_room.h"

#include <sys/stat.h>

#include "base/log.h"
#include "tests/unit/server/space/space_fixture.h"

namespace forebay::server {
namespace {

using forebay::testing::Operation;
using storage::RecordType;

class JournalRoomTest : public SpaceTest {
 protected:
  JournalRoom& room() { return space_->journal_room(); }
  /// What the segments take on the device.
  std::uint64_t segments_take() const {
    std::uint64_t bytes = 0;
    for (std::uint32_t segment = 0; segment < 4; ++segment) {
      struct stat status{};
      EXPECT_EQ(::stat(store_->segment_path(record_.id, segment).c_str(), &status), 0);
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
    return bytes;
  }
};

TEST_F(JournalRoomTest, beyond_the_reserve_comes_from_a_free_segment) {
  StatedStream stream(*space_, 1);
  const std::uint64_t before = segments_take();
  EXPECT_TRUE(room().make_room_for_step(stream.journal));
  EXPECT_FALSE(room().lends_segments()) << "there was room";
  stream.journal.size = mib;
  EXPECT_FALSE(room().has_room_for_step(stream.journal));
  EXPECT_TRUE(room().make_room_for_step(stream.journal));
  EXPECT_TRUE(room().has_room_for_step(stream.journal));
  EXPECT_EQ(room().lent_bytes(), mib);
  EXPECT_EQ(segments_take(), before - mib);
  EXPECT_EQ(space_->map().free_bytes(), 3 * mib);
  EXPECT_TRUE(space_->map().is_closed(3)) << "writers get the first segments";
}

TEST_F(JournalRoomTest, comes_back_when_journals_take_less) {
  StatedStream stream(*space_, 1);
  const std::uint64_t before = segments_take();
  stream.journal.size = 2 * mib;
  ASSERT_TRUE(room().make_room_for_step(stream.journal));
  ASSERT_EQ(room().lent_bytes(), 2 * mib);
  stream.journal.size = mib;
  room().shrank();
  EXPECT_EQ(room().lent_bytes(), mib);
  stream.journal.size = 0;
  room().shrank();
  EXPECT_FALSE(room().lends_segments());
  EXPECT_EQ(space_->map().free_bytes(), 4 * mib);
  EXPECT_EQ(segments_take(), before);
}

TEST_F(JournalRoomTest, is_never_taken_from_who_writes) {
  StatedStream writer(*space_, 1);
  // A page in each segment, so that all of them are its own.
  const auto held = fill(writer, 4 * mib);
  for (std::uint32_t segment = 0; segment < 4; ++segment) space_->release({segment, 0, mib - space_unit_bytes});
  writer.journal.size = mib;
  EXPECT_FALSE(room().make_room_for_step(writer.journal));
  EXPECT_FALSE(room().lends_segments());
  EXPECT_EQ(space_->map().free_bytes(), 4 * (mib - space_unit_bytes));
  // What is free beside its steps, once it has gone.
  writer.lives = false;
  EXPECT_TRUE(room().make_room_for_step(writer.journal));
  EXPECT_EQ(room().lent_bytes(), mib - space_unit_bytes);
}

TEST_F(JournalRoomTest, is_made_by_rolling_where_no_segment_can_make_it) {
  StatedStream asker(*space_, 1);
  StatedStream other(*space_, 2);
  ASSERT_FALSE(fill(asker, 4 * mib).empty());
  other.journal.size = mib;
  EXPECT_FALSE(room().make_room_for_step(asker.journal));
  other.journal.size_rolled = 8 * kib;
  EXPECT_TRUE(room().make_room_for_step(asker.journal));
  EXPECT_EQ(other.journal.size, 8 * kib);
  EXPECT_FALSE(room().lends_segments());
}

TEST_F(JournalRoomTest, is_not_emptied_in_vain) {
  StatedStream stream(*space_, 1);
  ASSERT_FALSE(fill(stream, 3 * mib).empty());
  stream.journal.size = 8 * mib;
  EXPECT_FALSE(room().make_room_for_step(stream.journal));
  EXPECT_FALSE(room().lends_segments()) << "one segment would not do";
}

TEST_F(JournalRoomTest, keeps_some_of_the_reserve_for_commits_and_more_for_ends) {
  StatedStream stream(*space_, 1);
  ASSERT_FALSE(fill(stream, 4 * mib).empty());
  const auto may_take = room().options().may_take;
  stream.journal.size = mib / 2;
  EXPECT_TRUE(may_take(4 * kib, RecordType::segments_owned, false));
  stream.journal.size = mib * 3 / 4;
  EXPECT_FALSE(may_take(4 * kib, RecordType::segments_owned, false));
  EXPECT_TRUE(may_take(4 * kib, RecordType::step_committed, false));
  stream.journal.size = mib * 7 / 8;
  EXPECT_FALSE(may_take(4 * kib, RecordType::step_committed, false));
  EXPECT_TRUE(may_take(4 * kib, RecordType::group_ended, false));
  EXPECT_TRUE(may_take(4 * kib, RecordType::steps_dropped, false));
  EXPECT_TRUE(room().is_full());
}

TEST_F(JournalRoomTest, that_is_not_needed_yet_is_taken_from_nobody) {
  StatedStream stream(*space_, 1);
  const auto may_take = room().options().may_take;
  stream.journal.size = mib;
  EXPECT_FALSE(may_take(64 * kib, RecordType::step_committed, true));
  EXPECT_FALSE(room().lends_segments());
  EXPECT_TRUE(may_take(64 * kib, RecordType::step_committed, false));
  EXPECT_TRUE(room().lends_segments());
}

TEST_F(JournalRoomTest, is_found_again_by_the_next_server) {
  std::uint64_t free_bytes = 0;
  {
    StatedStream stream(*space_, 1);
    stream.journal.size = 2 * mib;
    ASSERT_TRUE(room().make_room_for_step(stream.journal));
    free_bytes = space_->map().free_bytes();
  }
  begin_space();
  StatedStream stream(*space_, 1);
  room().begin_recovery();
  stream.journal.size = 2 * mib;
  EXPECT_TRUE(room().options().may_take(100 * mib, RecordType::step_committed, false)) << "what is free is not known";
  EXPECT_FALSE(room().lends_segments());
  room().end_recovery();
  EXPECT_EQ(room().lent_bytes(), 2 * mib);
  EXPECT_EQ(space_->map().free_bytes(), free_bytes);
  stream.journal.size = 0;
  room().shrank();
  EXPECT_EQ(space_->map().free_bytes(), 4 * mib);
}

TEST_F(JournalRoomTest, for_a_new_stream_is_refused_with_what_to_do) {
  StatedStream stream(*space_, 1);
  EXPECT_TRUE(room().make_room_for_stream());
  ASSERT_FALSE(fill(stream, 4 * mib).empty());
  stream.journal.size = mib;
  const auto refused = room().make_room_for_stream();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::no_space);
  EXPECT_NE(refused.error().message().find("remove streams"), std::string::npos) << refused.error().message();
}

TEST_F(JournalRoomTest, is_the_reserve_alone_where_files_have_no_holes) {
  log::set_level(log::Level::off);
  device_.fail_at(Operation::free_space, 1, ErrorCode::unsupported);
  StatedStream stream(*space_, 1);
  stream.journal.size = mib;
  EXPECT_FALSE(room().make_room_for_step(stream.journal));
  log::set_level(log::Level::error);
  EXPECT_FALSE(room().lends_segments());
  EXPECT_EQ(space_->map().free_bytes(), 4 * mib) << "nothing was taken in vain";
}

TEST_F(JournalRoomTest, a_segment_whose_space_cannot_be_given_back_is_passed_over) {
  log::set_level(log::Level::off);
  device_.fail_at(Operation::free_space, 1, ErrorCode::io_error);
  StatedStream stream(*space_, 1);
  stream.journal.size = mib;
  EXPECT_TRUE(room().make_room_for_step(stream.journal));
  log::set_level(log::Level::error);
  EXPECT_EQ(room().lent_bytes(), mib);
  EXPECT_TRUE(space_->map().is_closed(3)) << "a part of it may be gone";
  EXPECT_TRUE(space_->map().is_closed(2));
}

}  // namespace
}  // namespace forebay::server
