// SPDX-License-Identifier: Apache-2.0
// Seeds and counts of random tests: FOREBAY_TEST_SEED repeats a failure, FOREBAY_TEST_COUNT makes a run longer or
// shorter.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace forebay::testing {

inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

/// Seed of the first round; round i takes seed + i, so that a failing round repeats alone with count 1. A test that
/// asks for it prints it.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const std::uint64_t found = number_from_environment("FOREBAY_TEST_SEED", 20251121);
    std::cout << "FOREBAY_TEST_SEED=" << found << std::endl;
    return found;
  }();
  return seed;
}
inline std::uint64_t test_count(std::uint64_t otherwise) {
  return number_from_environment("FOREBAY_TEST_COUNT", otherwise);
}

using Random = std::mt19937_64;

/// Uniform in [0, bound).
inline std::uint64_t below(Random& random, std::uint64_t bound) {
  return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(random);
}
inline bool chance(Random& random, std::uint64_t one_in) {
  return below(random, one_in) == 0;
}

}  // namespace forebay::testing
