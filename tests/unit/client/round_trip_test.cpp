// SPDX-License-Identifier: Apache-2.0
// What a writer puts is what readers get: kinds of variables, sizes of blocks, selections, attributes, views.
#include <cstring>
#include <numeric>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

using RoundTrip = StreamTest;

TEST_F(RoundTrip, array_of_every_size_class_comes_back) {
  auto writer = open_writer();
  ASSERT_NE(writer, nullptr);
  auto reader = open_reader();
  ASSERT_NE(reader, nullptr);
  for (const std::size_t elements : {1, 7, 511, 512, 513, 8191, 8192, 100'000, 1'000'000}) {
    write_step(*writer, elements, 0.5 * static_cast<double>(elements));
    auto next = reader->next(10'000);
    ASSERT_OK(next);
    ASSERT_EQ(next->kind, NextStep::Kind::step);
    const auto values = read_step(*next->step);
    ASSERT_EQ(values.size(), elements);
    EXPECT_EQ(values.front(), 0.5 * static_cast<double>(elements));
    EXPECT_EQ(values.back(), 0.5 * static_cast<double>(elements) + static_cast<double>(elements - 1));
    EXPECT_TRUE(next->step->verify().has_value());
    const BlockInfo& block = next->step->find("T")->blocks.front();
    ASSERT_TRUE(block.has_statistics);
    double minimum = 0;
    std::memcpy(&minimum, block.min, sizeof minimum);
    EXPECT_EQ(minimum, values.front());
  }
  ASSERT_OK(writer->close());
  auto end = reader->next(10'000);
  ASSERT_OK(end);
  EXPECT_EQ(end->kind, NextStep::Kind::end_of_stream);
  EXPECT_EQ(end->status, StreamStatus::ended);
}

TEST_F(RoundTrip, many_small_blocks_come_back) {
  auto writer = open_writer();
  // Blocks of less than a page, of some pages, and of both: more than is gathered in little memory, and than a window.
  for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>(1000, 37),
                                                std::vector<std::size_t>(100, 512),
                                                std::vector<std::size_t>(900, 700),
                                                {40, 512, 3, 8000, 511, 513}}) {
    ASSERT_OK(writer->begin_step());
    const std::uint64_t number = writer->current_step();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<double> values(sizes[i]);
      std::iota(values.begin(), values.end(), 1000.0 * static_cast<double>(i));
      const Dimensions shape{sizes[i]};
      const Dimensions zeros{0};
      ASSERT_OK(writer->put(whole<double>("v" + std::to_string(i), shape, zeros), values.data()));
    }
    ASSERT_OK(writer->end_step());
    auto step = open_reader()->step(number);
    ASSERT_OK(step);
    ASSERT_EQ((*step)->variables().size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const VariableInfo* variable = (*step)->find("v" + std::to_string(i));
      ASSERT_NE(variable, nullptr);
      std::vector<double> values(sizes[i], -1);
      ASSERT_OK((*step)->read(*variable, {{0}, {sizes[i]}}, values.data()));
      for (std::size_t k = 0; k < sizes[i]; ++k) ASSERT_EQ(values[k], 1000.0 * static_cast<double>(i) + double(k));
    }
    ASSERT_OK((*step)->verify());
  }
}

TEST_F(RoundTrip, box_of_many_blocks_is_put_together) {
  auto writer = open_writer();
  ASSERT_NE(writer, nullptr);
  // 40 x 60 cells in blocks of 10 x 20, each cell holding its index.
  const Dimensions shape{40, 60};
  const Dimensions count{10, 20};
  ASSERT_OK(writer->begin_step());
  for (std::uint64_t row = 0; row < 40; row += 10) {
    for (std::uint64_t column = 0; column < 60; column += 20) {
      std::vector<std::int32_t> cells;
      for (std::uint64_t i = 0; i < 10; ++i) {
        for (std::uint64_t j = 0; j < 20; ++j) cells.push_back(static_cast<std::int32_t>((row + i) * 60 + column + j));
      }
      const Dimensions start{row, column};
      ASSERT_OK(
          writer->put({"A", DataType::int32, ShapeKind::global_array, shape, start, count, {}, {}}, cells.data()));
    }
  }
  ASSERT_OK(writer->end_step());

  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  const VariableInfo* variable = (*step)->find("A");
  ASSERT_NE(variable, nullptr);
  EXPECT_EQ(variable->blocks.size(), 12U);
  const Box box{{3, 7}, {30, 50}};
  // Into the middle of a larger array.
  std::vector<std::int32_t> out(40 * 64, -1);
  ASSERT_OK((*step)->read(*variable, box, out.data(), {{5, 9}, {40, 64}}));
  for (std::uint64_t i = 0; i < 40; ++i) {
    for (std::uint64_t j = 0; j < 64; ++j) {
      const bool inside = i >= 5 && i < 35 && j >= 9 && j < 59;
      const auto expected = inside ? static_cast<std::int32_t>((i - 5 + 3) * 60 + (j - 9 + 7)) : -1;
      ASSERT_EQ(out[i * 64 + j], expected) << i << ", " << j;
    }
  }
  // A box inside one block is seen in place, one that crosses blocks is not.
  auto view = (*step)->view(*variable, {{11, 21}, {2, 3}});
  ASSERT_OK(view);
  std::int32_t cell = 0;
  std::memcpy(&cell, view->data + view->strides_bytes[0] + 2 * view->strides_bytes[1], sizeof cell);
  EXPECT_EQ(cell, 12 * 60 + 23);
  EXPECT_EQ((*step)->view(*variable, box).error().code, ErrorCode::unsupported);
  EXPECT_EQ((*step)->read(*variable, {{30, 0}, {11, 1}}, out.data()).error().code, ErrorCode::invalid_argument);
}

TEST_F(RoundTrip, memory_selection_is_gathered) {
  auto writer = open_writer();
  const Dimensions memory_count{6, 300, 50};
  const Dimensions memory_start{1, 2, 3};
  const Dimensions count{4, 296, 44};
  std::vector<float> memory(6 * 300 * 50);
  std::iota(memory.begin(), memory.end(), 0.0F);
  const Dimensions zeros{0, 0, 0};
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(
      writer->put({"G", DataType::float32, ShapeKind::global_array, count, zeros, count, memory_start, memory_count},
                  memory.data()));
  ASSERT_OK(writer->end_step());
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  std::vector<float> out(4 * 296 * 44);
  ASSERT_OK((*step)->read(*(*step)->find("G"), {zeros, count}, out.data()));
  std::size_t next = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 296; ++j) {
      for (std::size_t k = 0; k < 44; ++k) ASSERT_EQ(out[next++], memory[((i + 1) * 300 + j + 2) * 50 + k + 3]);
    }
  }
  ASSERT_OK((*step)->verify());
}

TEST_F(RoundTrip, values_strings_and_attributes) {
  auto writer = open_writer();
  AttributeValue text;
  text.strings = {"metres"};
  ASSERT_OK(writer->set_attribute("unit", text));
  ASSERT_OK(writer->begin_step());
  const double time = 0.25;
  ASSERT_OK(writer->put({"time", DataType::float64, ShapeKind::global_value, {}, {}, {}, {}, {}}, &time));
  const std::int64_t local = 42;
  ASSERT_OK(writer->put({"cells", DataType::int64, ShapeKind::local_value, {}, {}, {}, {}, {}}, &local));
  ASSERT_OK(writer->put_string("name", ShapeKind::global_value, "bed"));
  ASSERT_OK(writer->end_step());
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->remove_attribute("unit"));
  ASSERT_OK(writer->end_step());

  auto reader = open_reader();
  auto first = reader->next(1000);
  ASSERT_OK(first);
  const Step& step = *first->step;
  double read_time = 0;
  ASSERT_OK(step.read(*step.find("time"), {}, &read_time));
  EXPECT_EQ(read_time, time);
  std::int64_t read_local = 0;
  EXPECT_EQ(step.find("cells")->shape, Dimensions{1});
  ASSERT_OK(step.read(*step.find("cells"), {{0}, {1}}, &read_local));
  EXPECT_EQ(read_local, local);
  EXPECT_EQ(step.read_string(*step.find("name"), 0).value(), "bed");
  ASSERT_EQ(step.attributes().size(), 1U);
  EXPECT_EQ(step.attributes()[0].value, text);
  EXPECT_EQ(step.find("nothing"), nullptr);
  auto second = reader->next(1000);
  ASSERT_OK(second);
  EXPECT_TRUE(second->step->attributes().empty());
}

TEST_F(RoundTrip, views_show_blocks_over_segments_that_lie_apart) {
  // Two streams take segments in turn, so that a block goes on in the next one or in another.
  auto first = open_writer();
  auto second = open_writer({}, "other");
  constexpr std::size_t elements = 700'000;
  for (int step = 0; step < 6; ++step) {
    write_step(*first, elements, step);
    write_step(*second, elements, 100 + step);
  }
  for (const char* stream : {"flow", "other"}) {
    auto reader = open_reader({}, stream);
    std::vector<Step::View> views;
    for (int i = 0; i < 6; ++i) {
      auto next = reader->next(10'000);
      ASSERT_OK(next);
      ASSERT_EQ(next->kind, NextStep::Kind::step);
      auto view = next->step->view(*next->step->find("T"), {{0}, {elements}});
      ASSERT_OK(view);
      const auto copied = read_step(*next->step);
      EXPECT_EQ(std::memcmp(view->data, copied.data(), elements * sizeof(double)), 0) << stream << " step " << i;
      views.push_back(std::move(*view));
    }
  }
}

TEST_F(RoundTrip, aborted_step_leaves_no_trace) {
  auto writer = open_writer();
  const Dimensions shape{100'000};
  const Dimensions zeros{0};
  const std::vector<double> values(100'000, 1.0);
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->put(whole<double>("T", shape, zeros), values.data()));
  ASSERT_OK(writer->abort_step());
  EXPECT_FALSE(writer->in_step());
  write_step(*writer, 10, 5.0);
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  EXPECT_EQ(read_step(**step).size(), 10U);
}

TEST_F(RoundTrip, misuse_is_told) {
  auto writer = open_writer();
  const Dimensions shape{10};
  const Dimensions zeros{0};
  const double data[10] = {};
  EXPECT_EQ(writer->put(whole<double>("T", shape, zeros), data).error().code, ErrorCode::invalid_argument);
  ASSERT_OK(writer->begin_step());
  EXPECT_EQ(writer->begin_step().error().code, ErrorCode::invalid_argument);
  ASSERT_OK(writer->put(whole<double>("T", shape, zeros), data));
  EXPECT_EQ(writer->put(whole<float>("T", shape, zeros), data).error().code, ErrorCode::invalid_argument);
  const Dimensions other{9};  // a global array may grow within a step, not shrink
  EXPECT_EQ(writer->put(whole<double>("T", other, zeros), data).error().code, ErrorCode::invalid_argument);
  const Dimensions outside{5};
  EXPECT_EQ(
      writer->put({"U", DataType::float64, ShapeKind::global_array, shape, outside, shape, {}, {}}, data).error().code,
      ErrorCode::invalid_argument);
  const Dimensions huge{std::uint64_t{1} << 62, 8};
  const Dimensions origin{0, 0};
  EXPECT_EQ(writer->put(whole<double>("V", huge, origin), data).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(writer->put(whole<double>("W", shape, zeros), nullptr).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(writer->close().error().code, ErrorCode::invalid_argument);
  ASSERT_OK(writer->end_step());
  ASSERT_OK(writer->close());
  ASSERT_OK(writer->close());
  EXPECT_EQ(writer->begin_step().error().code, ErrorCode::invalid_argument);
}

TEST_F(RoundTrip, joined_and_empty_blocks) {
  auto writer = open_writer();
  const Dimensions shape{joined_dimension, 3};
  ASSERT_OK(writer->begin_step());
  for (std::uint64_t rows : {2, 0, 5}) {
    std::vector<std::int16_t> values(rows * 3, static_cast<std::int16_t>(rows));
    const Dimensions count{rows, 3};
    ASSERT_OK(writer->put({"J", DataType::int16, ShapeKind::joined_array, shape, {}, count, {}, {}},
                          values.empty() ? nullptr : values.data()));
  }
  ASSERT_OK(writer->end_step());
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  const VariableInfo* variable = (*step)->find("J");
  EXPECT_EQ(variable->shape, (Dimensions{7, 3}));
  EXPECT_EQ(variable->blocks[2].start, (Dimensions{2, 0}));
  std::vector<std::int16_t> out(21);
  ASSERT_OK((*step)->read(*variable, {{0, 0}, {7, 3}}, out.data()));
  EXPECT_EQ(out[5], 2);
  EXPECT_EQ(out[6], 5);
}

}  // namespace
}  // namespace forebay::testing
