// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/daemon/revoked_tokens.h"

#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace forebay::testing {
namespace {

using server::RevokedTokens;

TEST(RevokedTokens, are_kept_until_they_would_have_expired) {
  const TemporaryDirectory directory;
  const std::string root = directory.path("");
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  auto tokens = RevokedTokens::load(posix_device(), root);
  ASSERT_TRUE(tokens);
  EXPECT_FALSE(tokens->contains(7));
  ASSERT_TRUE(tokens->add(7, 100, 50));
  ASSERT_TRUE(tokens->add(7, 100, 50));
  ASSERT_TRUE(tokens->add(most, 200, 50));
  ASSERT_TRUE(tokens->add(8, 60, 60));  // void already
  auto again = RevokedTokens::load(posix_device(), root);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->contains(7));
  EXPECT_TRUE(again->contains(most));
  EXPECT_FALSE(again->contains(8));
  ASSERT_TRUE(again->add(9, 300, 100));
  auto later = RevokedTokens::load(posix_device(), root);
  ASSERT_TRUE(later);
  EXPECT_FALSE(later->contains(7));
  EXPECT_TRUE(later->contains(most));
  EXPECT_TRUE(later->contains(9));
}

TEST(RevokedTokens, a_file_that_is_no_list_is_refused) {
  const TemporaryDirectory directory;
  for (const std::string& text :
       {std::string(), std::string("forebay-revoked-tokens-2\n"), std::string("forebay-revoked-tokens-1\n7"),
        std::string("forebay-revoked-tokens-1\n7\n"), std::string("forebay-revoked-tokens-1\nx 1\n"),
        std::string("forebay-revoked-tokens-1\n7 1x\n")}) {
    std::ofstream(directory.path("revoked-tokens"), std::ios::trunc) << text;
    const auto tokens = RevokedTokens::load(posix_device(), directory.path(""));
    ASSERT_FALSE(tokens) << text;
    EXPECT_EQ(tokens.error().code, ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace forebay::testing
