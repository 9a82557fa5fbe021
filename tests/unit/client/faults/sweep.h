// SPDX-License-Identifier: Apache-2.0
// Runs a test at every operation.
#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/support/randomness.h"
#include "tests/support/sweep_points.h"
#include "tests/unit/client/faults/programs.h"

namespace forebay::testing {

constexpr Programs::Play all_plays[] = {Programs::Play::everything, Programs::Play::full_reservation,
                                        Programs::Play::contended};

constexpr const char* name_of(Programs::Play play) {
  switch (play) {
    case Programs::Play::everything:
      return "everything";
    case Programs::Play::full_reservation:
      return "full reservation";
    case Programs::Play::contended:
      break;
  }
  return "contended";
}

/// How many operations on the disk a play has at least: about half of what it has.
constexpr std::uint64_t operations_min(Programs::Play play) {
  switch (play) {
    case Programs::Play::everything:
      return 165;
    case Programs::Play::full_reservation:
      return 40;
    case Programs::Play::contended:
      break;
  }
  return 105;
}

inline std::uint64_t only_operation() {
  return number_from_environment("FOREBAY_TEST_OPERATION", 0);
}

/// Whether a sweep meets all that it can meet: each operation is tried.
inline bool sweeps_all() {
  return only_operation() == 0 && stride_max() == 1;
}

/// Expects that a sweep went on beyond its `least`th operation: where there are fewer, some go past what counts them,
/// and nothing was tried.
inline void check_counted(std::uint64_t last, std::uint64_t least) {
  if (only_operation() > 0 || ::testing::Test::HasFailure()) return;
  EXPECT_GT(last, least) << "so few operations are counted";
}

/// Calls `fault_at(n, random)` for n = 1, 2, … (this run's share of them: tests/support/sweep_points.h) until it says
/// that there are no more operations, and returns the last n. There are `operations_min` or more.
/// FOREBAY_TEST_OPERATION=n repeats one.
template <class FaultAt>
std::uint64_t sweep_operations(std::uint64_t operations_min, const FaultAt& fault_at) {
  const std::uint64_t seed = test_seed();
  const std::uint64_t only = only_operation();
  const std::uint64_t stride = stride_of(operations_min, stride_max());
  // Servers complain of what was planned.
  log::set_level(only > 0 ? log::Level::info : log::Level::off);
  std::uint64_t tried = 0;
  std::uint64_t last = 0;
  for (std::uint64_t n = only > 0 ? only : 1 + first_point(seed, stride); !::testing::Test::HasFailure(); n += stride) {
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(seed) + " FOREBAY_TEST_OPERATION=" + std::to_string(n));
    // By its operation, so that one alone does as it did among all.
    Random random(seed + n);
    last = n;
    if (!fault_at(n, random)) break;
    ++tried;
    if (only > 0) break;
  }
  log::set_level(log::Level::error);
  if (only == 0 && !::testing::Test::HasFailure()) log_sweep(tried, last - 1, stride);
  return last;
}

/// The same, and expects that there are so many.
template <class FaultAt>
void sweep(std::uint64_t operations_min, const FaultAt& fault_at) {
  check_counted(sweep_operations(operations_min, fault_at), operations_min);
}

/// Sweeps over the operations of each play: FOREBAY_TEST_OPERATION=n is tried in all of them.
template <class FaultAt>
void sweep_plays(const FaultAt& fault_at) {
  for (const Programs::Play play : all_plays) {
    SCOPED_TRACE(name_of(play));
    sweep(operations_min(play), [&](std::uint64_t n, Random& random) { return fault_at(play, n, random); });
  }
}

}  // namespace forebay::testing
