// SPDX-License-Identifier: Apache-2.0
#include "storage/framing.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "tests/support/randomness.h"

namespace forebay::storage {
namespace {

using testing::below;
using testing::Random;

constexpr std::uint32_t file_number = 7;
constexpr std::uint32_t salt = 0xabcdef01;

/// A file of records with these bodies' sizes, and where each begins.
struct Written {
  std::vector<std::byte> bytes;
  std::vector<std::uint64_t> offsets;

  void add(std::uint64_t body_bytes, std::uint64_t synced_bytes = 0) {
    std::vector<std::byte> body(body_bytes, std::byte{0x5a});
    std::vector<std::byte> frame;
    encode_frame({.type = 3,
                  .sequence = static_cast<std::uint32_t>(offsets.size()),
                  .file = file_number,
                  .salt = salt,
                  .synced_bytes = synced_bytes},
                 body, frame);
    offsets.push_back(bytes.size());
    bytes.insert(bytes.end(), frame.begin(), frame.end());
  }
};

std::uint64_t count(FrameReader& reader) {
  std::uint64_t records = 0;
  while (reader.next()) ++records;
  return records;
}

TEST(Framing, header_lies_on_disk_as_specified) {
  std::vector<std::byte> frame;
  const char text[] = "forebay";
  encode_frame({.type = 0x0102,
                .sequence = 0x11121314,
                .file = 0x21222324,
                .salt = 0x31323334,
                .synced_bytes = 0x4142434445464748},
               std::as_bytes(std::span(text, 7)), frame);
  ASSERT_EQ(frame.size(), 40U);
  // The CRC's own place: over everything else.
  const auto all = std::span<const std::byte>(frame);
  const std::uint32_t crc = crc32c(all.subspan(12), crc32c(all.first(8)));
  EXPECT_EQ(std::memcmp(frame.data() + 8, &crc, 4), 0);
  std::memset(frame.data() + 8, 0xcc, 4);
  std::string hexadecimal;
  for (const std::byte byte : frame) {
    constexpr char digits[] = "0123456789abcdef";
    hexadecimal += digits[std::to_integer<int>(byte) >> 4];
    hexadecimal += digits[std::to_integer<int>(byte) & 15];
  }
  EXPECT_EQ(hexadecimal,
            "07000000020101fb"
            "cccccccc"
            "141312112423222134333231"
            "4847464544434241"
            "666f726562617900");
}

TEST(Framing, records_come_back_in_order_with_their_bodies) {
  Written written;
  for (const std::uint64_t size : {0, 1, 7, 8, 9, 4096}) written.add(size);
  FrameReader reader(written.bytes, file_number);
  for (std::size_t i = 0; i < written.offsets.size(); ++i) {
    const auto frame = reader.next();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->offset, written.offsets[i]);
    EXPECT_EQ(frame->header.sequence, i);
    EXPECT_EQ(frame->header.salt, salt);
  }
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.end(), FrameEnd::end);
  EXPECT_EQ(reader.position(), written.bytes.size());
}

TEST(Framing, zeros_behind_the_last_record_are_the_end) {
  Written written;
  written.add(100);
  written.bytes.resize(written.bytes.size() + 5000);
  FrameReader reader(written.bytes, file_number);
  EXPECT_EQ(count(reader), 1U);
  EXPECT_EQ(reader.end(), FrameEnd::end);
}

TEST(Framing, nothing_is_the_end) {
  FrameReader reader({}, file_number);
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.end(), FrameEnd::end);
}

TEST(Framing, a_broken_last_record_is_told_from_a_broken_one_before_whole_ones) {
  Written written;
  for (int i = 0; i < 4; ++i) written.add(100, written.bytes.size());
  for (std::size_t broken = 0; broken < 4; ++broken) {
    auto bytes = written.bytes;
    bytes[written.offsets[broken] + 50] ^= std::byte{1};
    FrameReader reader(bytes, file_number);
    EXPECT_EQ(count(reader), broken);
    EXPECT_EQ(reader.end(), broken == 3 ? FrameEnd::broken : FrameEnd::gap);
    EXPECT_EQ(reader.records_behind(), 3 - broken);
    EXPECT_EQ(reader.position(), written.offsets[broken]);
    EXPECT_EQ(reader.synced_bytes(), broken == 3 ? written.offsets[2] : written.offsets[3]);
  }
}

TEST(Framing, every_flipped_bit_ends_reading_at_its_record) {
  Written written;
  for (const std::uint64_t size : {30, 8, 61}) written.add(size);
  for (std::size_t byte = 0; byte < written.bytes.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = written.bytes;
      bytes[byte] ^= std::byte(1U << bit);
      FrameReader reader(bytes, file_number);
      const std::uint64_t broken = byte < written.offsets[1] ? 0 : byte < written.offsets[2] ? 1 : 2;
      ASSERT_EQ(count(reader), broken) << "byte " << byte << " bit " << bit;
      ASSERT_NE(reader.end(), FrameEnd::end);
    }
  }
}

TEST(Framing, records_of_another_file_or_salt_do_not_follow) {
  Written written;
  written.add(10);
  for (const bool other_file : {true, false}) {
    auto bytes = written.bytes;
    std::vector<std::byte> stale;
    encode_frame({.type = 3,
                  .sequence = 1,
                  .file = other_file ? file_number + 1 : file_number,
                  .salt = other_file ? salt : salt + 1},
                 std::vector<std::byte>(20), stale);
    bytes.insert(bytes.end(), stale.begin(), stale.end());
    FrameReader reader(bytes, file_number);
    EXPECT_EQ(count(reader), 1U);
    EXPECT_EQ(reader.end(), FrameEnd::broken);
  }
}

TEST(Framing, arbitrary_bytes_are_read_without_a_crash) {
  for (std::uint64_t round = 0; round < testing::test_count(2000); ++round) {
    Random random(testing::test_seed() + round);
    Written written;
    const std::uint64_t records = below(random, 5);
    for (std::uint64_t i = 0; i < records; ++i) written.add(below(random, 200));
    auto& bytes = written.bytes;
    bytes.resize(bytes.size() + below(random, 100));
    for (std::uint64_t change = below(random, 20); change > 0 && !bytes.empty(); --change) {
      bytes[below(random, bytes.size())] = static_cast<std::byte>(below(random, 256));
    }
    FrameReader reader(bytes, file_number);
    ASSERT_LE(count(reader), records);
    ASSERT_LE(reader.position(), bytes.size());
  }
}

}  // namespace
}  // namespace forebay::storage
