// SPDX-License-Identifier: Apache-2.0
// How the ranges of blocks and steps become one.
#include "variable_facts.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

namespace forebay::engine {
namespace {

VariableFacts range(double min, double max) {
  VariableFacts facts;
  facts.range.emplace();
  std::memcpy(facts.range->min.data(), &min, sizeof min);
  std::memcpy(facts.range->max.data(), &max, sizeof max);
  return facts;
}

double number(const std::array<std::byte, 16>& bytes) {
  double value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

TEST(VariableFacts, ranges_are_widened_by_what_lies_outside) {
  VariableFacts facts;
  widen(facts, range(2, 3), DataType::float64);
  widen(facts, range(-1, 2.5), DataType::float64);
  widen(facts, VariableFacts(), DataType::float64);
  EXPECT_EQ(number(facts.range->min), -1);
  EXPECT_EQ(number(facts.range->max), 3);
}

TEST(VariableFacts, a_block_of_nan_never_wins_wherever_it_comes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool nan_first : {true, false}) {
    VariableFacts facts;
    widen(facts, nan_first ? range(nan, nan) : range(1, 2), DataType::float64);
    EXPECT_EQ(facts.range.has_value(), !nan_first);
    widen(facts, nan_first ? range(1, 2) : range(nan, nan), DataType::float64);
    EXPECT_EQ(number(facts.range->min), 1) << nan_first;
    EXPECT_EQ(number(facts.range->max), 2) << nan_first;
  }
}

}  // namespace
}  // namespace forebay::engine
