// SPDX-License-Identifier: Apache-2.0
// Bodies of records out of bytes that nobody has looked at.
#include "storage/record_body.h"

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::storage {
namespace {

// At an address that is a multiple of 8, or 4 behind one.
class Body {
 public:
  explicit Body(std::span<const std::uint8_t> packed) : bytes_(packed.size()) {
    for (const std::size_t offset : {0U, 4U}) std::memcpy(memory_[offset / 4].data() + offset, packed.data(), bytes_);
  }
  std::span<const std::byte> aligned() const { return std::span(memory_[0]).first(bytes_); }
  std::span<const std::byte> shifted() const { return std::span(memory_[1]).subspan(4, bytes_); }

 private:
  std::size_t bytes_;
  alignas(8) std::array<std::array<std::byte, 256>, 2> memory_{};
};

template <class Record>
void expect_aligned_only(const Record& record) {
  using Table = typename Record::TableType;
  flatbuffers::FlatBufferBuilder builder;
  const Body body(pack_body(builder, record));
  EXPECT_TRUE(verified_body<Table>(body.aligned()));
  const auto shifted = verified_body<Table>(body.shifted());
  ASSERT_FALSE(shifted);
  EXPECT_EQ(shifted.error().code, ErrorCode::corrupt);
}

// The library's own verification takes them: reading such elements is undefined.
TEST(RecordBody, vectors_whose_elements_lie_where_they_may_not_are_refused) {
  journal::PreciousSetT numbers;
  numbers.steps = {1, 2, 3};
  expect_aligned_only(numbers);
  journal::StepsDroppedT structs;
  structs.ranges.emplace_back(1, 2);
  expect_aligned_only(structs);
}

TEST(RecordBody, vectors_without_elements_may_lie_anywhere) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(journal::CreatePreciousSet(builder, builder.CreateVector(std::vector<std::uint64_t>())));
  const Body body({builder.GetBufferPointer(), builder.GetSize()});
  const auto shifted = verified_body<journal::PreciousSet>(body.shifted());
  ASSERT_TRUE(shifted);
  ASSERT_NE((*shifted)->steps(), nullptr);
  EXPECT_EQ((*shifted)->steps()->size(), 0U);
}

}  // namespace
}  // namespace forebay::storage
