// SPDX-License-Identifier: Apache-2.0
#include "members/sync_counters.h"

#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace forebay::server {
namespace {

TEST(SyncCounters, what_was_stored_is_read_again_and_what_was_not_counts_as_zeros) {
  const testing::TemporaryDirectory directory;
  const std::string folder = directory.path();
  EXPECT_EQ(load_sync_counters(posix_device(), folder, 3), std::vector<std::uint64_t>(3));
  for (const std::uint64_t number : {std::uint64_t{7}, std::uint64_t{8}, std::numeric_limits<std::uint64_t>::max()}) {
    const std::vector<std::uint64_t> counters{0, number, 1};
    ASSERT_TRUE(store_sync_counters(posix_device(), folder, counters));
    EXPECT_EQ(load_sync_counters(posix_device(), folder, 3), counters);
  }
}

TEST(SyncCounters, of_what_was_changed_or_is_of_another_length_nothing_is_taken) {
  const testing::TemporaryDirectory directory;
  const std::string folder = directory.path();
  ASSERT_TRUE(store_sync_counters(posix_device(), folder, std::vector<std::uint64_t>{12, 345}));
  const auto bytes = read_whole(posix_device(), folder + "/syncs", 64);
  ASSERT_TRUE(bytes);
  for (const std::size_t count : {1, 3}) EXPECT_FALSE(load_sync_counters(posix_device(), folder, count)) << count;
  // But for the end of each line, which says nothing.
  for (std::size_t i = 0; i < bytes->size(); ++i) {
    if (i % 32 >= 29 || i % 32 == 20) continue;
    auto changed = *bytes;
    changed[i] ^= std::byte{1};
    std::ofstream(folder + "/syncs", std::ios::binary)
        .write(reinterpret_cast<const char*>(changed.data()), static_cast<std::streamsize>(changed.size()));
    const auto loaded = load_sync_counters(posix_device(), folder, 2);
    ASSERT_FALSE(loaded) << i;
    EXPECT_EQ(loaded.error().code, ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace forebay::server
