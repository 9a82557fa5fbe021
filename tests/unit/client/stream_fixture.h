// SPDX-License-Identifier: Apache-2.0
// What tests of streams share: a server with a reservation, and short ways to write and read arrays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <forebay/address.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

#include "tests/unit/client/server_process.h"

namespace forebay::testing {

#define ASSERT_OK(expression)                                      \
  do {                                                             \
    const auto& result_ = (expression);                            \
    ASSERT_TRUE(result_.has_value()) << result_.error().message(); \
  } while (false)

class StreamTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t mib = std::uint64_t{1} << 20;

  void SetUp() override { server_.create("res", capacity()); }
  virtual std::uint64_t capacity() const { return 256 * mib; }

  std::unique_ptr<Writer> open_writer(WriterOptions options = {}, const std::string& stream = "flow") {
    auto writer = Writer::open(*parse_address("res/" + stream), options);
    EXPECT_TRUE(writer) << writer.error().message();
    return writer ? std::move(*writer) : nullptr;
  }
  std::unique_ptr<Reader> open_reader(ReaderOptions options = {}, const std::string& stream = "flow") {
    auto reader = Reader::open(*parse_address("res/" + stream), options);
    EXPECT_TRUE(reader) << reader.error().message();
    return reader ? std::move(*reader) : nullptr;
  }

  /// A 1-d global array that this rank writes whole.
  template <class T>
  static BlockSpec whole(std::string_view name, const Dimensions& shape, const Dimensions& zeros) {
    BlockSpec block;
    block.name = name;
    block.type = *data_type_of<T>;
    block.shape = shape;
    block.start = zeros;
    block.count = shape;
    return block;
  }

  /// Writes one step with one array of doubles that begin with `first` and grow by one.
  static void write_step(Writer& writer, std::size_t elements, double first) {
    std::vector<double> values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = first + static_cast<double>(i);
    const Dimensions shape{elements};
    const Dimensions zeros{0};
    ASSERT_OK(writer.begin_step());
    ASSERT_OK(writer.put(whole<double>("T", shape, zeros), values.data()));
    ASSERT_OK(writer.end_step());
  }

  /// The array of such a step.
  static std::vector<double> read_step(const Step& step) {
    const VariableInfo* variable = step.find("T");
    if (variable == nullptr) return {};
    std::vector<double> values(variable->shape[0]);
    auto read = step.read(*variable, {{0}, variable->shape}, values.data());
    EXPECT_TRUE(read) << read.error().message();
    return values;
  }

  ServerProcess server_;
};

}  // namespace forebay::testing
