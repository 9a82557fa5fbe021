// SPDX-License-Identifier: Apache-2.0
// The table of pins as a server finds it; what is in docs/formats/pins.md but never written is in
// tests/fuzz/pins_fuzz.cpp.
#include "staging-servers/readers/pin_table.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace forebay::testing {
namespace {

using server::PinTable;
using server::ReaderPresence;

constexpr std::size_t slot_bytes = 72;
constexpr std::uint64_t slot_count = 16384;
constexpr char uuid[] = "0b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d";

class PinTableTest : public ::testing::Test {
 protected:
  std::unique_ptr<PinTable> open() {
    absent_.clear();
    auto presence = ReaderPresence::open(directory_.path());
    auto table = PinTable::open(path_, false, *presence, absent_);
    EXPECT_TRUE(table.has_value());
    return std::move(*table);
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_.path("pins");
  std::vector<PinTable::Absent> absent_;
};

TEST_F(PinTableTest, a_pin_that_lies_in_two_slots_is_one_and_is_gone_once_removed) {
  ASSERT_TRUE(open()->add(5, {::getpid(), {}}, uuid, 1, 7));
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  std::string slot(slot_bytes, '\0');
  file.read(slot.data(), slot_bytes);
  file.seekp(3 * slot_bytes);
  file.write(slot.data(), slot_bytes);
  file.close();
  auto table = open();
  ASSERT_EQ(absent_.size(), 1U);
  EXPECT_EQ(absent_.front().keys.size(), 1U);
  table->remove(5, 1, 7);
  table.reset();
  open();
  EXPECT_TRUE(absent_.empty());
}

TEST_F(PinTableTest, no_user_takes_the_slots_of_all) {
  auto table = open();
  const PinTable::Holder ada{::getpid(), 1001};
  const PinTable::Holder bob{::getpid(), 1002};
  const auto fill = [&](std::uint64_t session, const PinTable::Holder& holder) {
    std::uint64_t step = 0;
    while (table->add(session, holder, uuid, 1, step)) ++step;
    return step;
  };
  EXPECT_EQ(fill(1, ada), slot_count / 2);
  EXPECT_EQ(fill(2, ada), 0U);                  // another reader of hers
  EXPECT_TRUE(table->add(1, ada, uuid, 1, 0));  // has it already
  table->remove(1, 1, 0);
  EXPECT_TRUE(table->add(2, ada, uuid, 1, 0));
  EXPECT_EQ(fill(3, bob), slot_count / 4);
  // The administrator's readers share with nobody.
  EXPECT_EQ(fill(4, {::getpid(), {}}), slot_count / 4);
  EXPECT_FALSE(table->add(3, bob, uuid, 1, slot_count));
}

TEST_F(PinTableTest, a_pin_of_before_a_restart_counts_once_its_reader_is_back) {
  const PinTable::Holder ada{::getpid(), 1001};
  auto table = open();
  for (std::uint64_t step = 0; step < slot_count / 2; ++step) ASSERT_TRUE(table->add(1, ada, uuid, 1, step));
  table.reset();
  table = open();
  EXPECT_TRUE(table->add(2, ada, uuid, 1, 0));
  table->remove(2, 1, 0);
  for (std::uint64_t step = 0; step < slot_count / 2; ++step) ASSERT_TRUE(table->add(1, ada, uuid, 1, step));
  EXPECT_FALSE(table->add(2, ada, uuid, 1, 0));
  for (std::uint64_t step = 0; step < slot_count / 2; ++step) table->remove(1, 1, step);
  EXPECT_TRUE(table->add(2, ada, uuid, 1, 0));
}

}  // namespace
}  // namespace forebay::testing
