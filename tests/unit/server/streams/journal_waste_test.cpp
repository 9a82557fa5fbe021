// SPDX-License-Identifier: Apache-2.0
// What rolling a journal would free, by what its file holds.
#include "staging-servers/streams/journal_waste.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

using storage::RecordType;

void add_steps(JournalWaste& waste, int steps, std::uint64_t bytes) {
  for (int step = 0; step < steps; ++step) waste.add(RecordType::step_committed, bytes);
}

TEST(JournalWaste, counts_steps_that_are_gone) {
  JournalWaste waste;
  add_steps(waste, 100, 300);
  EXPECT_EQ(waste.bytes(100), 0U);
  EXPECT_EQ(waste.bytes(60), 40U * 300);
}

TEST(JournalWaste, counts_records_of_changes_but_not_what_the_next_file_repeats) {
  JournalWaste waste;
  add_steps(waste, 10, 300);
  waste.add(RecordType::steps_staged, 5000);
  waste.add(RecordType::steps_dropped, 70);
  waste.add(RecordType::cursor_moved, 90);
  EXPECT_EQ(waste.bytes(10), 160U);
  waste.begin_file(10, 8000);
  EXPECT_EQ(waste.bytes(10), 0U);
}

TEST(JournalWaste, counts_steps_as_a_part_of_a_checkpoint_only) {
  JournalWaste waste;
  add_steps(waste, 10, 300);
  // Most of it are consumers, say.
  waste.begin_file(5, 100'000);
  EXPECT_EQ(waste.bytes(5), 0U);
  EXPECT_EQ(waste.bytes(0), 5U * 300);
}

TEST(JournalWaste, counts_a_checkpoint_that_was_read_as_steps) {
  JournalWaste waste;
  waste.begin_file(10, 4000);
  waste.add(RecordType::step_committed, 400);
  EXPECT_EQ(waste.bytes(1), 4000U);
  // Without any, all of it is something else.
  waste = {};
  waste.begin_file(0, 4000);
  EXPECT_EQ(waste.bytes(0), 0U);
}

}  // namespace
}  // namespace forebay::server
