// SPDX-License-Identifier: Apache-2.0
// What rolling a journal would give back, by what its file tells of.
#include "staging-servers/readers/told_steps.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

using storage::RecordType;

void add_steps(ToldSteps& told, int steps, std::uint64_t bytes) {
  for (int step = 0; step < steps; ++step) told.add(RecordType::step_committed, bytes);
}

TEST(ToldSteps, give_back_what_is_gone) {
  ToldSteps told;
  add_steps(told, 100, 300);
  EXPECT_EQ(told.gone_bytes(100), 0U);
  EXPECT_EQ(told.gone_bytes(60), 40U * 300);
}

TEST(ToldSteps, give_back_records_of_changes_but_not_what_the_next_file_repeats) {
  ToldSteps told;
  add_steps(told, 10, 300);
  told.add(RecordType::steps_staged, 5000);
  told.add(RecordType::steps_dropped, 70);
  told.add(RecordType::cursor_moved, 90);
  EXPECT_EQ(told.gone_bytes(10), 160U);
  told.begin_file(10, 8000);
  EXPECT_EQ(told.gone_bytes(10), 0U);
}

TEST(ToldSteps, are_a_part_of_a_checkpoint_only) {
  ToldSteps told;
  add_steps(told, 10, 300);
  // Most of it are consumers, say.
  told.begin_file(5, 100'000);
  EXPECT_EQ(told.gone_bytes(5), 0U);
  EXPECT_EQ(told.gone_bytes(0), 5U * 300);
}

TEST(ToldSteps, take_a_checkpoint_that_was_read_for_steps) {
  ToldSteps told;
  told.begin_file(10, 4000);
  told.add(RecordType::step_committed, 400);
  EXPECT_EQ(told.gone_bytes(1), 4000U);
  // Without any, all of it is something else.
  told = {};
  told.begin_file(0, 4000);
  EXPECT_EQ(told.gone_bytes(0), 0U);
}

}  // namespace
}  // namespace forebay::server
