// SPDX-License-Identifier: Apache-2.0
// Bodies of records out of bytes that nobody has looked at.
#include "storage/record_body.h"

#include <array>
#include <cstring>

#include <gtest/gtest.h>

namespace forebay::storage {
namespace {

template <class Record>
void expect_aligned_only(const Record& record) {
  using Table = typename Record::TableType;
  flatbuffers::FlatBufferBuilder builder;
  const auto packed = std::as_bytes(pack_body(builder, record));
  alignas(8) std::array<std::byte, 256> memory{};
  ASSERT_LE(packed.size() + 4, memory.size());
  const auto at = [&](std::size_t offset) {
    std::memcpy(memory.data() + offset, packed.data(), packed.size());
    return std::span<const std::byte>(memory).subspan(offset, packed.size());
  };
  EXPECT_TRUE(verified_body<Table>(at(0)));
  const auto shifted = verified_body<Table>(at(4));
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

TEST(RecordBody, vectors_of_nothing_may_lie_anywhere) {
  journal::PreciousSetT nothing;
  flatbuffers::FlatBufferBuilder builder;
  const auto packed = std::as_bytes(pack_body(builder, nothing));
  EXPECT_TRUE(verified_body<journal::PreciousSet>(packed));
}

}  // namespace
}  // namespace forebay::storage
