// SPDX-License-Identifier: Apache-2.0
// Runs a test at every operation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/support/randomness.h"
#include "tests/unit/client/programs.h"

namespace forebay::testing {

/// Calls `fault_at(n, random)` for n = 1, 2, … (each `every`th, from one that the seed chooses) until it says that
/// there are no more operations. FOREBAY_TEST_COUNT: for about so many of them; `operations_about` is how many there
/// are, about. FOREBAY_TEST_OPERATION=n repeats one.
template <class FaultAt>
void sweep(std::uint64_t operations_about, const FaultAt& fault_at, std::uint64_t every = 1) {
  const std::uint64_t seed = test_seed();
  const std::uint64_t only = number_from_environment("FOREBAY_TEST_OPERATION", 0);
  const std::uint64_t count = std::max<std::uint64_t>(1, test_count(operations_about / every));
  const std::uint64_t stride = std::max<std::uint64_t>(1, operations_about / count);
  // Servers complain of what was planned.
  log::set_level(only > 0 ? log::Level::info : log::Level::off);
  std::uint64_t points = 0;
  for (std::uint64_t n = only > 0 ? only : 1 + seed % stride; !::testing::Test::HasFailure(); n += stride) {
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(seed) + " FOREBAY_TEST_OPERATION=" + std::to_string(n));
    // By its operation, so that one alone does as it did among all.
    Random random(seed + n);
    ++points;
    if (!fault_at(n, random) || only > 0) break;
  }
  log::set_level(log::Level::error);
  std::cout << points << " operations, every " << stride << ".\n";
}

/// Sweeps over the operations of each play: FOREBAY_TEST_OPERATION=n is tried in both.
template <class FaultAt>
void sweep_plays(const FaultAt& fault_at, std::uint64_t every = 1) {
  constexpr std::pair<Programs::Play, std::uint64_t> plays[] = {{Programs::Play::everything, 330},
                                                                {Programs::Play::full_reservation, 80}};
  for (const auto& [play, operations_about] : plays) {
    SCOPED_TRACE(play == Programs::Play::everything ? "everything" : "full reservation");
    sweep(operations_about, [&](std::uint64_t n, Random& random) { return fault_at(play, n, random); }, every);
  }
}

}  // namespace forebay::testing
