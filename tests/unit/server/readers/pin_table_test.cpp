// SPDX-License-Identifier: Apache-2.0
// The table of pins as a server finds it; what is in docs/formats/pins.md but never written is in
// tests/fuzz/pins_fuzz.cpp.
#include "staging-servers/readers/pin_table.h"

#include <unistd.h>

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
  ASSERT_TRUE(open()->add(5, ::getpid(), uuid, 1, 7));
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

}  // namespace
}  // namespace forebay::testing
