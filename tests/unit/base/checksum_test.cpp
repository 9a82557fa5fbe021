// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/randomness.h"

namespace forebay::testing {
namespace {

TEST(Checksum, two_runs_have_the_checksum_of_both_together) {
  Random random(test_seed());
  std::vector<std::byte> bytes(300'000);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  const std::span<const std::byte> all(bytes);
  for (int round = 0; round < 200; ++round) {
    const std::size_t end = round < 4 ? static_cast<std::size_t>(round) : below(random, bytes.size());
    const std::size_t cut = below(random, end + 1);
    const auto second = all.subspan(cut, end - cut);
    EXPECT_EQ(crc32c_combined(crc32c(all.first(cut)), crc32c(second), second.size()), crc32c(all.first(end)))
        << cut << " of " << end;
  }
}

}  // namespace
}  // namespace forebay::testing
