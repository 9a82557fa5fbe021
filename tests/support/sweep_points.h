// SPDX-License-Identifier: Apache-2.0
// Which points of a sweep a run tries: a share that the seed chooses, at least a thirty-second, so that 32 seeds in a
// row try all. FOREBAY_TEST_STRIDE_MAX=1 tries all at once. tests/support/sweeps.py is the same in Python.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/randomness.h"

namespace forebay::testing {

/// The least share of a sweep that a run takes is one in so many.
inline constexpr std::uint64_t share_min = 32;

/// The longest stride that is asked for.
inline std::uint64_t stride_max() {
  const std::uint64_t found = number_from_environment("FOREBAY_TEST_STRIDE_MAX", share_min);
  if (found < 1 || found > share_min) {
    std::cerr << "FOREBAY_TEST_STRIDE_MAX is " << found << "; it is 1 (all points of a sweep) to " << share_min
              << ".\n";
    std::exit(2);
  }
  return found;
}

/// The longest stride by which each start takes a thirty-second of a sweep of `points_min` points or more: of n points
/// a stride takes n / stride, or one more.
constexpr std::uint64_t stride_of(std::uint64_t points_min, std::uint64_t longest = share_min) {
  for (std::uint64_t stride = std::min(longest, share_min); stride > 1; --stride) {
    // n / stride is rounded by less than one, and n / stride - n / 32 grows with n.
    bool enough = true;
    for (std::uint64_t n = points_min; n < points_min + stride * share_min && enough; ++n)
      enough = n / stride * share_min >= n;
    if (enough) return stride;
  }
  return 1;
}

/// Where a run begins, counted from 0.
constexpr std::uint64_t first_point(std::uint64_t seed, std::uint64_t stride) {
  return seed % stride;
}

/// Tells the summary of ./run test what a sweep has tried. Where the end was found by a stride, there may be up to
/// stride - 1 points fewer.
inline void log_sweep(std::uint64_t tried, std::uint64_t points, std::uint64_t stride) {
  std::cout << "sweep: " << tried << " of " << points << " points, every " << stride << ".\n";
  const char* log = std::getenv("FOREBAY_TEST_SWEEPS_LOG");
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (log == nullptr || test == nullptr) return;
  // One write of one line: tests run beside one another.
  std::ofstream(log, std::ios::app) << "{\"sweep\": \"" + std::string(test->test_suite_name()) + "." + test->name() +
                                           "\", \"tried\": " + std::to_string(tried) +
                                           ", \"points\": " + std::to_string(points) +
                                           ", \"stride\": " + std::to_string(stride) + "}\n";
}

/// Calls `try_at(i)` for this run's share of 0 … points - 1, until something fails. Returns how many it tried.
template <class TryAt>
std::uint64_t sweep_points(std::uint64_t points, const TryAt& try_at) {
  const std::uint64_t stride = stride_of(points, stride_max());
  std::uint64_t tried = 0;
  for (std::uint64_t i = first_point(test_seed(), stride); i < points && !::testing::Test::HasFailure(); i += stride) {
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(test_seed()));
    try_at(i);
    ++tried;
  }
  if (!::testing::Test::HasFailure()) log_sweep(tried, points, stride);
  return tried;
}

}  // namespace forebay::testing
