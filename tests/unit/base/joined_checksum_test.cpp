// SPDX-License-Identifier: Apache-2.0
#include "base/joined_checksum.h"

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <forebay/checksum.h>

namespace forebay {
namespace {

TEST(JoinedChecksum, parts_give_what_the_whole_gives) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(5000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> whole(bytes);
  for (const std::size_t cut : {0, 1, 4, 63, 64, 4096, 4999, 5000})
    EXPECT_EQ(joined_checksum(crc32c(whole.first(cut)), crc32c(whole.subspan(cut)), whole.size() - cut), crc32c(whole))
        << cut;
}

TEST(JoinedChecksum, zeros_need_not_be_read) {
  const std::vector<std::byte> zeros(70'001);
  const std::uint32_t before = crc32c(std::as_bytes(std::span("123456789", 9)));
  EXPECT_EQ(before, 0xE3069283);
  for (const std::size_t count : {0, 1, 3, 4096, 70'001})
    EXPECT_EQ(checksum_with_zeros(before, count), crc32c(std::span(zeros).first(count), before)) << count;
}

}  // namespace
}  // namespace forebay
