// SPDX-License-Identifier: Apache-2.0
// Journals whose bytes were changed or cut behind the journal's back.
#include "storage/framing.h"
#include "tests/unit/storage/journal_fixture.h"

namespace forebay::storage {
namespace {

using Bodies = std::vector<std::string>;

/// A journal with a checkpoint and five records, of which those before the sync are known to be on stable storage.
class DamagedJournalTest : public JournalTest {
 protected:
  DamagedJournalTest() {
    auto journal = created(bodies_[0]);
    ends_.push_back(frame_bytes(bodies_[0].size()));
    for (std::size_t i = 1; i < bodies_.size(); ++i) {
      if (i == synced_records) {
        EXPECT_TRUE(journal->sync());
      }
      append(*journal, bodies_[i]);
      ends_.push_back(ends_.back() + frame_bytes(bodies_[i].size()));
    }
    whole_ = read_file(file(1));
  }

  /// Of the record that this byte belongs to; their number for bytes behind them.
  std::size_t record_at(std::size_t byte) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends_, byte) - ends_.begin());
  }
  Bodies first(std::size_t records) const {
    return {bodies_.begin(), bodies_.begin() + static_cast<std::ptrdiff_t>(records)};
  }

  static constexpr std::size_t synced_records = 3;  // the record of this number is the first that says so
  const Bodies bodies_ = {"the checkpoint", "one", "two, a little longer", "", std::string(90, '4'), "five"};
  std::vector<std::uint64_t> ends_;
  std::vector<char> whole_;
};

// crash-matrix: a bit flips in a journal | any byte of the file, same boot or another | the records before it; damage is told from what power loss takes
TEST_F(DamagedJournalTest, a_flip_of_any_byte_is_noticed) {
  for (const bool same_boot : {true, false}) {
    for (std::size_t byte = 0; byte < whole_.size(); byte += byte < ends_.back() + 16 ? 1 : 997) {
      SCOPED_TRACE("byte " + std::to_string(byte) + (same_boot ? ", same boot" : ", after a boot"));
      auto bytes = whole_;
      bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << (byte % 8)));
      write_file(file(1), bytes);
      const std::size_t record = record_at(byte);
      auto again = opened({.same_boot = same_boot});
      ASSERT_EQ(again.bodies(), first(record));
      if (record == 0) {
        ASSERT_FALSE(again.journal);
        ASSERT_EQ(again.journal.error().code, ErrorCode::corrupt);
        ASSERT_EQ(read_file(file(1)), bytes);
        continue;
      }
      ASSERT_TRUE(again.journal) << again.journal.error().message();
      // The last record cannot be told from one that was being written; of the others, only those not synced can have
      // been lost.
      const bool damaged = record + 1 < bodies_.size() && (same_boot || record < synced_records);
      ASSERT_EQ(again.recovery.damaged, damaged);
      if (damaged) {
        ASSERT_NE(again.recovery.damage.find("journal.1 @ " + std::to_string(ends_[record - 1])), std::string::npos)
            << again.recovery.damage;
        ASSERT_EQ(read_file(file(1)), bytes);
      } else {
        ASSERT_GT(again.recovery.bytes_cut, 0U);
        ASSERT_EQ(again.recovery.records_cut, record < bodies_.size() ? bodies_.size() - 1 - record : 0);
      }
    }
  }
}

TEST_F(DamagedJournalTest, cut_at_any_length_gives_the_records_that_are_whole) {
  for (std::size_t length = 0; length <= ends_.back() + 1; ++length) {
    SCOPED_TRACE("length " + std::to_string(length));
    write_file(file(1), {whole_.begin(), whole_.begin() + static_cast<std::ptrdiff_t>(length)});
    const std::size_t records = record_at(length);
    auto again = opened();
    ASSERT_EQ(again.bodies(), first(records));
    if (records == 0) {
      ASSERT_EQ(again.journal.error().code, ErrorCode::corrupt);
      continue;
    }
    ASSERT_TRUE(again.journal);
    ASSERT_FALSE(again.recovery.damaged);
    append(**again.journal, "new");
    again.journal->reset();
    auto expected = first(records);
    expected.push_back("new");
    ASSERT_EQ(opened().bodies(), expected);
  }
}

TEST_F(DamagedJournalTest, records_behind_a_cut_never_come_back) {
  // Power loss took record 4, and left record 5. A new record of the old one's length ends where record 5 began.
  auto bytes = whole_;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(ends_[3]),
            bytes.begin() + static_cast<std::ptrdiff_t>(ends_[4]), '\0');
  write_file(file(1), bytes);
  {
    auto again = opened();
    ASSERT_EQ(again.recovery.records_cut, 1U);
    append(**again.journal, std::string(90, 'n'));
  }
  EXPECT_EQ(opened().bodies(), (Bodies{bodies_[0], bodies_[1], bodies_[2], bodies_[3], std::string(90, 'n')}));
}

TEST_F(JournalTest, power_loss_right_after_a_cut_does_not_bring_the_tail_back) {
  // Records of more than a sector: power loss may take what overwrote the tail and leave what was appended in its
  // place.
  const std::string lost(2000, 'l'), behind(2000, 'b'), appended(2000, 'a');
  {
    auto journal = created();
    append(*journal, lost);
    append(*journal, behind);
  }
  auto bytes = read_file(file(1));
  const auto lost_at = static_cast<std::ptrdiff_t>(frame_bytes(std::string("checkpoint").size()));
  std::fill_n(bytes.begin() + lost_at, frame_bytes(lost.size()), '\0');
  for (std::uint64_t seed = testing::test_seed(); seed < testing::test_seed() + 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto limbo = testing::TemporaryDirectory::in_memory();
    testing::FaultyDevice device(limbo.path());
    testing::Random random(seed);
    write_file(file(1), bytes);
    {
      auto again = open_journal(device, directory());
      ASSERT_EQ(again.recovery.records_cut, 1U);
      append(**again.journal, appended);
    }
    device.lose_power(random);
    const auto bodies = open_journal(device, directory()).bodies();
    ASSERT_TRUE(bodies == (Bodies{"checkpoint"}) || bodies == (Bodies{"checkpoint", appended})) << bodies.size();
  }
}

TEST_F(DamagedJournalTest, a_damaged_journal_stays_as_it_is) {
  auto bytes = whole_;
  bytes[ends_[1] + 40] = 'X';
  write_file(file(1), bytes);
  auto again = opened({.same_boot = true});
  ASSERT_TRUE(again.recovery.damaged);
  Journal& journal = **again.journal;
  EXPECT_EQ(journal.append(RecordType::durable_to, {}).error().code, ErrorCode::corrupt);
  EXPECT_EQ(journal.roll(bytes_of("what was read")).error().code, ErrorCode::corrupt);
  EXPECT_EQ(names(), (Bodies{"journal.1"}));
  EXPECT_EQ(read_file(file(1)), bytes);
}

}  // namespace
}  // namespace forebay::storage
