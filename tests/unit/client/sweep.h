// SPDX-License-Identifier: Apache-2.0
// Runs a test at every operation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/support/randomness.h"
#include "tests/unit/client/programs.h"

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

/// How many operations on the disk a play has, about.
constexpr std::uint64_t operations_about(Programs::Play play) {
  switch (play) {
    case Programs::Play::everything:
      return 330;
    case Programs::Play::full_reservation:
      return 80;
    case Programs::Play::contended:
      break;
  }
  return 210;
}

inline std::uint64_t only_operation() {
  return number_from_environment("FOREBAY_TEST_OPERATION", 0);
}

/// Expects that a sweep went on to its `least`th operation: where there are fewer, some go past what counts them, and
/// nothing was tried.
inline void check_counted(std::uint64_t last, std::uint64_t least) {
  if (only_operation() > 0 || ::testing::Test::HasFailure()) return;
  EXPECT_GE(last, least) << "so few operations are counted";
}

/// Calls `fault_at(n, random)` for n = 1, 2, … (each `every`th, from one that the seed chooses) until it says that
/// there are no more operations, and returns the last n. FOREBAY_TEST_COUNT: for about so many of them;
/// `operations_about` is how many there are, about. FOREBAY_TEST_OPERATION=n repeats one.
template <class FaultAt>
std::uint64_t try_operations(std::uint64_t operations_about, const FaultAt& fault_at, std::uint64_t every = 1) {
  const std::uint64_t seed = test_seed();
  const std::uint64_t only = only_operation();
  const std::uint64_t count = std::max<std::uint64_t>(1, test_count(operations_about / every));
  const std::uint64_t stride = std::max<std::uint64_t>(1, operations_about / count);
  // Servers complain of what was planned.
  log::set_level(only > 0 ? log::Level::info : log::Level::off);
  std::uint64_t points = 0;
  std::uint64_t last = 0;
  for (std::uint64_t n = only > 0 ? only : 1 + seed % stride; !::testing::Test::HasFailure(); n += stride) {
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(seed) + " FOREBAY_TEST_OPERATION=" + std::to_string(n));
    // By its operation, so that one alone does as it did among all.
    Random random(seed + n);
    ++points;
    last = n;
    if (!fault_at(n, random) || only > 0) break;
  }
  log::set_level(log::Level::error);
  std::cout << points << " operations to " << last << ", every " << stride << ".\n";
  return last;
}

/// The same, where at least half of `operations_about` must be there.
template <class FaultAt>
void sweep(std::uint64_t operations_about, const FaultAt& fault_at, std::uint64_t every = 1) {
  check_counted(try_operations(operations_about, fault_at, every), operations_about / 2);
}

/// Whether a sweep meets all that it can meet: neither one operation nor fewer than usual were asked for.
inline bool sweeps_all() {
  return only_operation() == 0 && number_from_environment("FOREBAY_TEST_COUNT", 0) == 0;
}

/// Sweeps over the operations of each play: FOREBAY_TEST_OPERATION=n is tried in all of them.
template <class FaultAt>
void sweep_plays(const FaultAt& fault_at, std::uint64_t every = 1) {
  for (const Programs::Play play : all_plays) {
    SCOPED_TRACE(name_of(play));
    sweep(operations_about(play), [&](std::uint64_t n, Random& random) { return fault_at(play, n, random); }, every);
  }
}

}  // namespace forebay::testing
