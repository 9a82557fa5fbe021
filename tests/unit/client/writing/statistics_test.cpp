// SPDX-License-Identifier: Apache-2.0
// Minimum and maximum against the plain loop, for every type and many lengths.
#include "client/writing/statistics.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/randomness.h"

namespace forebay::client {
namespace {

template <class T>
std::pair<T, T> result_of(const MinMax& min_max) {
  const auto statistics = min_max.result();
  T min{};
  T max{};
  std::memcpy(&min, statistics.data(), std::min(sizeof(T), std::size_t{16}));
  std::memcpy(&max, statistics.data() + 16, std::min(sizeof(T), std::size_t{16}));
  return {min, max};
}

template <class T>
class MinMaxOf : public ::testing::Test {};
using Types = ::testing::Types<char, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                               std::uint32_t, std::uint64_t, float, double, long double>;
TYPED_TEST_SUITE(MinMaxOf, Types);

TYPED_TEST(MinMaxOf, agrees_with_the_plain_loop) {
  using T = TypeParam;
  forebay::testing::Random random(forebay::testing::test_seed());
  for (std::size_t length = 1; length < 3000; length = length * 5 / 4 + 1) {
    std::vector<T> values(length + 1);
    for (T& value : values) value = static_cast<T>(static_cast<std::int64_t>(random()) >> (random() % 64));
    // In parts, and not at the type's alignment.
    std::vector<std::byte> bytes(length * sizeof(T) + 1);
    std::memcpy(bytes.data() + 1, values.data(), length * sizeof(T));
    MinMax min_max(*data_type_of<T>);
    const std::size_t cut = random() % (length + 1) * sizeof(T);
    min_max.add(std::span(bytes).subspan(1, cut));
    min_max.add(std::span(bytes).subspan(1 + cut));
    const auto [min, max] = result_of<T>(min_max);
    ASSERT_EQ(min, *std::min_element(values.begin(), values.end() - 1));
    ASSERT_EQ(max, *std::max_element(values.begin(), values.end() - 1));
  }
}

TYPED_TEST(MinMaxOf, pads_with_zeros) {
  using T = TypeParam;
  const T value = 3;
  MinMax min_max(*data_type_of<T>);
  min_max.add(std::as_bytes(std::span(&value, 1)));
  const auto statistics = min_max.result();
  for (std::size_t i = sizeof(T) == 16 ? 10 : sizeof(T); i < 16; ++i) EXPECT_EQ(statistics[i], std::byte{0});
}

template <class T>
void check_not_a_number() {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> values(1000, nan);
  MinMax only_nan(*data_type_of<T>);
  only_nan.add(std::as_bytes(std::span(values)));
  EXPECT_TRUE(std::isnan(result_of<T>(only_nan).first));
  EXPECT_TRUE(std::isnan(result_of<T>(only_nan).second));
  // Wherever they stand, the numbers win.
  for (std::size_t at = 0; at < values.size(); at += 7) {
    std::vector<T> some = values;
    some[at] = T{-2};
    some[values.size() - 1 - at] = T{5};
    MinMax min_max(*data_type_of<T>);
    min_max.add(std::as_bytes(std::span(some)));
    ASSERT_EQ(result_of<T>(min_max), std::pair(T{-2}, T{5}));
  }
  std::vector<T> infinite(100, infinity);
  MinMax min_max(*data_type_of<T>);
  min_max.add(std::as_bytes(std::span(infinite)));
  EXPECT_EQ(result_of<T>(min_max), std::pair(infinity, infinity));
}

TEST(MinMaxOfFloatingPoint, nan_never_wins) {
  check_not_a_number<float>();
  check_not_a_number<double>();
  check_not_a_number<long double>();
}

}  // namespace
}  // namespace forebay::client
