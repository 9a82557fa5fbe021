// SPDX-License-Identifier: Apache-2.0
// Reservations whose creation or end is broken off at every operation, by the death of the process or of the machine.
#include <gtest/gtest.h>

#include "tests/unit/storage/reservation_fixture.h"

namespace forebay::storage {
namespace {

using testing::below;
using testing::FaultyDevice;
using testing::Random;

/// What the outside was told about one reservation and its streams: what was asked for last, without an answer; all
/// before it has come to pass.
enum class Told { nothing, creating, making_flow, making_kept, retiring_flow, retiring, retired };

/// Ends where something fails.
Told live(Device& device, const std::string& root) {
  auto store = ReservationStore::open(device, root);
  if (!store) return Told::nothing;
  if (!(*store)->create(reservation_record())) return Told::creating;
  if (!(*store)->make_stream_directory(reservation_id, "flow")) return Told::making_flow;
  if (!(*store)->make_stream_directory(reservation_id, "kept")) return Told::making_kept;
  if (!(*store)->retire_stream(reservation_id, "flow")) return Told::retiring_flow;
  if (!(*store)->retire(reservation_id)) return Told::retiring;
  return Told::retired;
}

struct CrashRound {
  testing::TemporaryDirectory root = testing::TemporaryDirectory::in_memory();
  testing::TemporaryDirectory limbo = testing::TemporaryDirectory::in_memory();
  FaultyDevice device{limbo.path()};

  /// Starts anew: there is the reservation, whole, with its streams, or nothing, as was told; and a second start finds
  /// nothing more to do.
  void check(Told told) {
    device.reset();
    auto store = ReservationStore::open(device, root.path());
    ASSERT_TRUE(store) << store.error().message();
    std::vector<std::string> problems;
    std::vector<std::string> unread;
    auto loaded = (*store)->load(problems, unread);
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_TRUE(problems.empty()) << problems[0];
    if (told > Told::creating && told < Told::retiring) {
      EXPECT_EQ(loaded->size(), 1U);
    }
    if (told == Told::nothing || told == Told::retired) {
      EXPECT_EQ(loaded->size(), 0U);
    }
    for (const auto& record : *loaded) EXPECT_EQ(bytes_of_record(record), bytes_of_record(reservation_record()));
    if (!loaded->empty()) {
      const auto streams = (*store)->stream_names(reservation_id);
      ASSERT_TRUE(streams) << streams.error().message();
      const auto is_there = [&](const char* name) { return std::ranges::find(*streams, name) != streams->end(); };
      // Either way while that was asked for.
      if (told != Told::making_flow && told != Told::retiring_flow) {
        EXPECT_EQ(is_there("flow"), told == Told::making_kept);
      }
      if (told != Told::making_kept) {
        EXPECT_EQ(is_there("kept"), told >= Told::retiring_flow);
      }
      EXPECT_EQ(streams->size(), (is_there("flow") ? 1U : 0U) + (is_there("kept") ? 1U : 0U));
    }
    // Going on from wherever it stopped ends the same way.
    ASSERT_TRUE((*store)->create(reservation_record()));
    ASSERT_TRUE((*store)->make_stream_directory(reservation_id, "flow"));
    ASSERT_TRUE((*store)->retire(reservation_id));
    const auto purged = (*store)->purge_quarantine(1000);
    ASSERT_TRUE(purged) << purged.error().message();
    EXPECT_TRUE(*purged);
    EXPECT_TRUE(names_in(root.path("reservations")).empty());
    EXPECT_TRUE(names_in(root.path("quarantine")).empty());
  }
};

std::uint64_t operations_needed() {
  CrashRound round;
  EXPECT_EQ(live(round.device, round.root.path()), Told::retired);
  return round.device.operations();
}

// crash-matrix: create and destroy of a reservation, making of two streams, removing of one | server, killed at any operation of the disk | the reservation whole or not at all, and each stream there or not, as was told (either where there was no answer); going on ends the same way
TEST(ReservationCrash, a_process_that_dies_at_any_operation_leaves_it_whole_or_not_there) {
  const std::uint64_t operations = operations_needed();
  for (std::uint64_t n = 1; n <= operations + 1 && !HasFailure(); ++n) {
    SCOPED_TRACE("operation " + std::to_string(n));
    CrashRound round;
    round.device.stop_at(n);
    round.check(live(round.device, round.root.path()));
  }
}

// crash-matrix: create and destroy of a reservation, making of two streams, removing of one | machine loses power at any operation of the disk | the reservation whole or not at all, and each stream there or not, as was told (either where there was no answer); going on ends the same way
TEST(ReservationCrash, power_loss_at_any_operation_leaves_it_whole_or_not_there) {
  const std::uint64_t operations = operations_needed();
  for (std::uint64_t n = 1; n <= operations + 1 && !HasFailure(); ++n) {
    for (std::uint64_t i = 0; i < testing::test_count(5); ++i) {
      const std::uint64_t seed = testing::test_seed() + i;
      SCOPED_TRACE("operation " + std::to_string(n) + ", seed " + std::to_string(seed));
      Random random(seed);
      CrashRound round;
      round.device.stop_at(n);
      const Told told = live(round.device, round.root.path());
      round.device.lose_power(random);
      round.check(told);
    }
  }
}

// crash-matrix: create and destroy of a reservation, making of two streams, removing of one | any operation of the disk fails, with an I/O error or for want of space | the reservation whole or not at all, and each stream there or not, as was told (either where the answer was the error); a creation that failed leaves nothing
TEST(ReservationCrash, an_operation_that_fails_leaves_it_whole_or_not_there) {
  const std::uint64_t operations = operations_needed();
  for (const ErrorCode code : {ErrorCode::io_error, ErrorCode::no_space}) {
    for (std::uint64_t n = 1; n <= operations && !HasFailure(); ++n) {
      SCOPED_TRACE("operation " + std::to_string(n));
      CrashRound round;
      round.device.fail_at(n, code);
      const Told told = live(round.device, round.root.path());
      if (told == Told::creating) {
        // A creation that was answered with an error has left nothing, without a restart.
        EXPECT_TRUE(names_in(round.root.path("reservations")).empty());
      }
      round.check(told);
    }
  }
}

}  // namespace
}  // namespace forebay::storage
