// SPDX-License-Identifier: Apache-2.0
// Rows of boxes against a model that walks element by element.
#include "client/reading/boxes.h"

#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/randomness.h"

namespace forebay::client {
namespace {

// Row-major position of an index.
std::uint64_t position(const Dimensions& index, const Dimensions& shape) {
  std::uint64_t result = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) result = result * shape[d] + index[d];
  return result;
}

struct Boxes {
  Dimensions count, first_shape, first_start, second_shape, second_start;
};

Boxes random_boxes(forebay::testing::Random& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  Boxes boxes;
  const std::size_t dimensions = 1 + below(5);
  for (std::size_t d = 0; d < dimensions; ++d) {
    boxes.count.push_back(1 + below(4));
    for (auto [shape, start] :
         {std::pair(&boxes.first_shape, &boxes.first_start), std::pair(&boxes.second_shape, &boxes.second_start)}) {
      // Often covered whole, so that rows merge.
      const std::uint64_t before = below(2) == 0 ? 0 : below(3);
      const std::uint64_t behind = below(2) == 0 ? 0 : below(3);
      start->push_back(before);
      shape->push_back(before + boxes.count[d] + behind);
    }
  }
  return boxes;
}

TEST(ForEachRow, covers_every_element_of_random_boxes_once_and_in_order) {
  forebay::testing::Random random(forebay::testing::test_seed());
  for (int round = 0; round < 2000; ++round) {
    const Boxes boxes = random_boxes(random);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> expected;
    Dimensions index(boxes.count.size(), 0);
    while (true) {
      Dimensions first = index;
      Dimensions second = index;
      for (std::size_t d = 0; d < index.size(); ++d) {
        first[d] += boxes.first_start[d];
        second[d] += boxes.second_start[d];
      }
      expected.emplace_back(position(first, boxes.first_shape), position(second, boxes.second_shape));
      std::size_t d = index.size();
      while (d > 0 && ++index[d - 1] == boxes.count[d - 1]) index[--d] = 0;
      if (d == 0) break;
    }
    std::vector<std::pair<std::uint64_t, std::uint64_t>> visited;
    std::uint64_t rows = 0;
    for_each_row({boxes.count, boxes.first_shape, boxes.first_start, boxes.second_shape, boxes.second_start},
                 [&](std::uint64_t first, std::uint64_t second, std::uint64_t length) {
                   ++rows;
                   for (std::uint64_t i = 0; i < length; ++i) visited.emplace_back(first + i, second + i);
                 });
    ASSERT_EQ(visited, expected);
    if (boxes.count == boxes.first_shape && boxes.count == boxes.second_shape) {
      ASSERT_EQ(rows, 1U);
    }
  }
}

TEST(ForEachRow, box_without_elements_has_no_rows) {
  const Dimensions count{3, 0, 2};
  const Dimensions shape{5, 5, 5};
  const Dimensions start{0, 5, 0};
  for_each_row({count, shape, start, shape, start}, [](std::uint64_t, std::uint64_t, std::uint64_t) { FAIL(); });
}

TEST(ForEachRow, box_of_no_dimensions_is_one_element) {
  int rows = 0;
  for_each_row({{}, {}, {}, {}, {}}, [&](std::uint64_t first, std::uint64_t second, std::uint64_t length) {
    ++rows;
    EXPECT_EQ(first + second, 0U);
    EXPECT_EQ(length, 1U);
  });
  EXPECT_EQ(rows, 1);
}

TEST(CheckBox, refuses_what_overflows_or_lies_outside) {
  const std::uint64_t most = ~std::uint64_t{0};
  const Dimensions shape{10, 10};
  EXPECT_TRUE(check_box(Dimensions{0, 10}, Dimensions{10, 0}, shape, "box").has_value());
  EXPECT_FALSE(check_box(Dimensions{1, 0}, Dimensions{10, 1}, shape, "box").has_value());
  EXPECT_FALSE(check_box(Dimensions{most, 0}, Dimensions{2, 1}, shape, "box").has_value());
  EXPECT_FALSE(check_box(Dimensions{1, 0}, Dimensions{most, 1}, shape, "box").has_value());
  EXPECT_FALSE(check_box(Dimensions{0}, Dimensions{1}, shape, "box").has_value());
}

TEST(Intersect, agrees_with_counting_in_one_dimension) {
  for (std::uint64_t start = 0; start < 6; ++start) {
    for (std::uint64_t count = 0; count < 6; ++count) {
      const auto shared = intersect(Dimensions{2}, Dimensions{3}, Dimensions{start}, Dimensions{count});
      std::uint64_t expected = 0;
      for (std::uint64_t i = start; i < start + count; ++i) expected += i >= 2 && i < 5 ? 1 : 0;
      ASSERT_EQ(shared ? shared->count[0] : 0, expected);
      if (shared) {
        EXPECT_EQ(2 + shared->in_block[0], start + shared->in_box[0]);
      }
    }
  }
}

}  // namespace
}  // namespace forebay::client
