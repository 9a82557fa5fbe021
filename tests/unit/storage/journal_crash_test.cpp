// SPDX-License-Identifier: Apache-2.0
// Journals of processes that die, and of machines that lose power, at every operation.
#include <thread>

#include "tests/support/randomness.h"
#include "tests/unit/storage/journal_fixture.h"

namespace forebay::storage {
namespace {

using testing::below;
using testing::FaultyDevice;
using testing::Random;

/// The state that the records make: a list of numbers.
using State = std::vector<std::string>;

std::string checkpoint_of(const State& state) {
  std::string text;
  for (const std::string& number : state) text += number + ",";
  return text;
}

State state_of(const std::vector<SeenRecord>& seen) {
  State state;
  for (const SeenRecord& record : seen) {
    if (record.type != RecordType::checkpoint) {
      // Larger than a page, so that power loss may take a part of it.
      state.push_back(record.body.substr(0, record.body.find(' ')));
      continue;
    }
    state.clear();
    for (std::size_t at = 0; at < record.body.size();) {
      const auto comma = record.body.find(',', at);
      state.push_back(record.body.substr(at, comma - at));
      at = comma + 1;
    }
  }
  return state;
}

/// What the outside was told.
struct Promised {
  bool created = false;
  State appended;          ///< appends that returned success
  std::size_t synced = 0;  ///< how many of them were promised to be on stable storage
};

/// Appends, syncs and rolls until something fails.
void work(Journal& journal, Random& random, std::size_t operations, Promised& promised) {
  for (std::size_t i = 0; i < operations; ++i) {
    const std::size_t count = promised.appended.size();
    switch (below(random, 8)) {
      case 0:
        if (!journal.sync()) return;
        promised.synced = count;
        break;
      case 1:
        if (!journal.roll(bytes_of(checkpoint_of(promised.appended)))) return;
        promised.synced = count;
        break;
      default: {
        const std::string number = std::to_string(count);
        if (!journal.append(RecordType::step_committed, bytes_of(number + " " + std::string(below(random, 6000), '.'))))
          return;
        promised.appended.push_back(number);
      }
    }
  }
}

Promised work_on_new(Device& device, const std::string& directory, Random& random) {
  Promised promised;
  auto journal = Journal::create(device, directory, bytes_of(""));
  if (!journal) return promised;
  promised.created = true;
  work(**journal, random, 25, promised);
  return promised;
}

bool is_prefix(const State& part, const State& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

struct Round {
  testing::TemporaryDirectory place = testing::TemporaryDirectory::in_memory();
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device{limbo.path()};
};

/// Runs `check(round, n)` for n = 1, 2, … until the work needs no more than n operations.
template <class Check>
void at_every_operation(std::uint64_t seed, const Check& check) {
  std::uint64_t operations = 0;
  {
    Round round;
    Random random(seed);
    work_on_new(round.device, round.place.path(), random);
    operations = round.device.operations();
  }
  for (std::uint64_t n = 1; n <= operations + 1 && !::testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", operation " + std::to_string(n));
    Round round;
    check(round, n);
  }
}

// crash-matrix: append, sync, roll of a journal | server, killed at any operation of the disk, its last write torn | every record that was appended
TEST(JournalCrash, a_process_that_dies_at_any_operation_loses_nothing_that_it_appended) {
  const std::uint64_t seeds = testing::test_count(20);
  for (std::uint64_t seed = testing::test_seed(); seed < testing::test_seed() + seeds; ++seed) {
    at_every_operation(seed, [&](Round& round, std::uint64_t n) {
      Random random(seed);
      round.device.stop_at(n);
      const Promised promised = work_on_new(round.device, round.place.path(), random);
      round.device.reset();
      auto again = open_journal(round.device, round.place.path(), {.same_boot = true});
      if (!promised.created && !again.journal) {
        ASSERT_EQ(again.journal.error().code, ErrorCode::not_found);
        return;
      }
      ASSERT_TRUE(again.journal) << again.journal.error().message();
      ASSERT_FALSE(again.recovery.damaged) << again.recovery.damage;
      ASSERT_EQ(state_of(again.seen), promised.appended);
      // At most the file in use is left.
      ASSERT_EQ(round.device.list(round.place.path())->size(), 1U);
    });
  }
}

// crash-matrix: append, sync, roll of a journal | machine loses power at any operation of the disk, and again while recovering | the records before the last sync, or more, never a gap
TEST(JournalCrash, power_loss_at_any_operation_leaves_the_synced_prefix_or_more) {
  const std::uint64_t seeds = testing::test_count(20);
  for (std::uint64_t seed = testing::test_seed(); seed < testing::test_seed() + seeds; ++seed) {
    at_every_operation(seed, [&](Round& round, std::uint64_t n) {
      Random random(seed);
      round.device.stop_at(n);
      Promised promised = work_on_new(round.device, round.place.path(), random);
      // Down, up, more work, and down again while recovering or working.
      for (int boots = 0; boots < 3; ++boots) {
        round.device.lose_power(random);
        round.device.stop_at(1 + below(random, 30));
        auto during = open_journal(round.device, round.place.path());
        if (during.journal)
          work(**during.journal, random, 10,
               promised = {.created = true, .appended = state_of(during.seen), .synced = promised.synced});
        round.device.reset();
        auto again = open_journal(round.device, round.place.path());
        if (!promised.created && !again.journal) {
          ASSERT_EQ(again.journal.error().code, ErrorCode::not_found);
          return;
        }
        ASSERT_TRUE(again.journal) << again.journal.error().message();
        ASSERT_FALSE(again.recovery.damaged) << again.recovery.damage;
        const State state = state_of(again.seen);
        ASSERT_TRUE(is_prefix(state, promised.appended)) << state.size() << " of " << promised.appended.size();
        ASSERT_GE(state.size(), promised.synced);
      }
    });
  }
}

// crash-matrix: append, sync, roll of a journal | machine loses power after a sync, during which records were appended | the records before the sync
TEST(JournalCrash, a_sync_does_not_speak_for_what_is_appended_while_it_runs) {
  Round round;
  auto journal = Journal::create(round.device, round.place.path(), bytes_of(""));
  ASSERT_TRUE(journal) << journal.error().message();
  const auto append = [&](const std::string& number) {
    return (*journal)->append(RecordType::step_committed, bytes_of(number + " "));
  };
  ASSERT_TRUE(append("0"));
  round.device.set_syncs_held(true);
  std::jthread syncing([&] { EXPECT_TRUE((*journal)->sync()); });
  round.device.await_held_sync();
  ASSERT_TRUE(append("1"));
  round.device.set_syncs_held(false);
  syncing.join();
  // All that power loss may take.
  while (round.device.lose_latest()) {
  }
  round.device.forget();
  journal->reset();
  const auto after = open_journal(round.device, round.place.path());
  ASSERT_TRUE(after.journal) << after.journal.error().message();
  EXPECT_FALSE(after.recovery.damaged) << after.recovery.damage;
  EXPECT_EQ(state_of(after.seen), State{"0"});
}

// crash-matrix: append, sync, roll of a journal | any operation of the disk fails, with an I/O error or for want of space | every record that was appended; after a loss of power those before the last sync that succeeded
TEST(JournalCrash, an_operation_that_fails_loses_nothing_that_was_appended) {
  const std::uint64_t seeds = testing::test_count(20);
  for (std::uint64_t seed = testing::test_seed(); seed < testing::test_seed() + seeds; ++seed) {
    for (const ErrorCode code : {ErrorCode::io_error, ErrorCode::no_space}) {
      at_every_operation(seed, [&](Round& round, std::uint64_t n) {
        Random random(seed);
        round.device.fail_at(n, code);
        Promised promised = work_on_new(round.device, round.place.path(), random);
        if (!promised.created) return;
        // Behind the last operation nothing has failed yet.
        round.device.reset();
        auto again = open_journal(round.device, round.place.path(), {.same_boot = true});
        ASSERT_TRUE(again.journal) << again.journal.error().message();
        ASSERT_EQ(state_of(again.seen), promised.appended);
        work(**again.journal, random, 10, promised);
        round.device.lose_power(random);
        auto after = open_journal(round.device, round.place.path());
        ASSERT_TRUE(after.journal) << after.journal.error().message();
        ASSERT_TRUE(is_prefix(state_of(after.seen), promised.appended));
        ASSERT_GE(state_of(after.seen).size(), promised.synced);
      });
    }
  }
}

}  // namespace
}  // namespace forebay::storage
