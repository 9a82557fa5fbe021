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
  ASSERT_TRUE(tokens->add(7, {1001, 100}, 50));
  ASSERT_TRUE(tokens->add(7, {1001, 100}, 50));
  ASSERT_TRUE(tokens->add(most, {1001, 200}, 50));
  ASSERT_TRUE(tokens->add(8, {1001, 60}, 60));  // void already
  auto again = RevokedTokens::load(posix_device(), root);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->contains(7));
  EXPECT_TRUE(again->contains(most));
  EXPECT_FALSE(again->contains(8));
  ASSERT_TRUE(again->add(9, {1001, 300}, 100));
  auto later = RevokedTokens::load(posix_device(), root);
  ASSERT_TRUE(later);
  EXPECT_FALSE(later->contains(7));
  EXPECT_TRUE(later->contains(most));
  EXPECT_TRUE(later->contains(9));
}

TEST(RevokedTokens, one_user_takes_no_room_from_others) {
  const TemporaryDirectory directory;
  {
    // Each is written down when it is revoked, which takes a while.
    std::ofstream list(directory.path("revoked-tokens"));
    list << "forebay-revoked-tokens-2\n";
    for (int serial = 1; serial < 1024; ++serial) list << std::hex << serial << std::dec << " 1000 1001\n";
  }
  auto tokens = RevokedTokens::load(posix_device(), directory.path(""));
  ASSERT_TRUE(tokens) << tokens.error().message();
  ASSERT_TRUE(tokens->add(1024, {1001, 1000}, 0));
  EXPECT_EQ(tokens->add(1025, {1001, 1000}, 0).error().code, ErrorCode::busy);
  EXPECT_TRUE(tokens->add(1025, {1002, 1000}, 0));
  // Expired ones count no more.
  EXPECT_TRUE(tokens->add(1026, {1001, 3000}, 2000));
}

TEST(RevokedTokens, a_file_that_is_no_list_is_refused) {
  const TemporaryDirectory directory;
  for (const std::string& text :
       {std::string(), std::string("forebay-revoked-tokens-1\n"), std::string("forebay-revoked-tokens-2\n7"),
        std::string("forebay-revoked-tokens-2\n7 1\n"), std::string("forebay-revoked-tokens-2\nx 1 1\n"),
        std::string("forebay-revoked-tokens-2\n7 1x 1\n"), std::string("forebay-revoked-tokens-2\n7 1 1x\n")}) {
    std::ofstream(directory.path("revoked-tokens"), std::ios::trunc) << text;
    const auto tokens = RevokedTokens::load(posix_device(), directory.path(""));
    ASSERT_FALSE(tokens) << text;
    EXPECT_EQ(tokens.error().code, ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace forebay::testing
