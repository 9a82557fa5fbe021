// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/daemon/root_files.h"

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

constexpr char uuid[] = "0b7c9f9e-52a5-4c3e-9d0c-0a4d9a1b2c3d";

TEST(RootFiles, an_identity_is_written_and_read) {
  const std::string text = to_text(RootIdentity{uuid, 0x1f});
  EXPECT_EQ(text, "forebay-root-1 " + std::string(uuid) + " 000000000000001f\n");
  const auto identity = parse_identity(text.substr(0, text.size() - 1), "f");
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->uuid, uuid);
  EXPECT_EQ(identity->storage_incarnation, 0x1fU);
  // It is written in place where the disk has no byte left.
  EXPECT_EQ(to_text(RootIdentity{uuid, ~std::uint64_t{0}}).size(), text.size());
}

TEST(RootFiles, what_is_no_identity_is_refused) {
  for (const std::string& text :
       {std::string(), std::string(uuid), std::string(uuid) + " ", std::string(uuid) + " 0", std::string(uuid) + " x",
        std::string(uuid) + " 1 2", "1 " + std::string(uuid), std::string(uuid) + " 10000000000000000"}) {
    const auto identity = parse_identity("forebay-root-1 " + text, "f");
    ASSERT_FALSE(identity) << text;
    EXPECT_EQ(identity.error().code, ErrorCode::corrupt);
    EXPECT_EQ(parse_identity(text, "f").error().code, ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace forebay::server
