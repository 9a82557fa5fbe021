// SPDX-License-Identifier: Apache-2.0
#include "fabric/permit.h"

#include <gtest/gtest.h>

#include "base/uuid.h"

namespace forebay::fabric {
namespace {

Permit some_permit(const TokenKey& key, bool writes) {
  Permit permit;
  permit.key_id = key.id;
  permit.reservation_id = random_uuid();
  permit.access_generation = 7;
  permit.uid = 1000;
  permit.member = 2;
  permit.server_run = 0x123456789abcdef0;
  permit.number = 42;
  permit.presence = 43;
  if (writes) {
    permit.stream = random_uuid();
    permit.incarnation = 3;
    permit.rank = 5;
    permit.segments = {16, 17, 40};
  }
  return permit;
}

TEST(PermitTest, says_to_the_member_what_the_home_has_sealed) {
  const TokenKey key = TokenKey::draw();
  for (const bool writes : {false, true}) {
    const Permit permit = some_permit(key, writes);
    const auto sealed = seal(permit, key);
    const auto read = unseal(sealed, key);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, permit);
    EXPECT_EQ(read->writes(), writes);
    EXPECT_EQ(segments_in(sealed), permit.segments);
  }
}

TEST(PermitTest, is_refused_after_any_change_of_a_byte) {
  const TokenKey key = TokenKey::draw();
  const auto sealed = seal(some_permit(key, true), key);
  for (std::size_t place = 0; place < sealed.size(); ++place) {
    for (const int bit : {0, 3, 7}) {
      auto changed = sealed;
      changed[place] ^= static_cast<std::uint8_t>(1U << bit);
      const auto read = unseal(changed, key);
      ASSERT_FALSE(read) << "byte " << place;
      EXPECT_TRUE(read.error().code == ErrorCode::permission_denied || read.error().code == ErrorCode::protocol);
    }
  }
}

TEST(PermitTest, is_refused_where_lengths_lie_or_the_key_is_another) {
  const TokenKey key = TokenKey::draw();
  const auto sealed = seal(some_permit(key, true), key);
  for (std::size_t bytes = 0; bytes < sealed.size(); ++bytes) {
    EXPECT_FALSE(unseal(std::span(sealed).first(bytes), key)) << bytes;
    EXPECT_FALSE(segments_in(std::span(sealed).first(bytes)).has_value() && bytes < 128);
  }
  auto longer = sealed;
  longer.insert(longer.end(), 4, 0);
  EXPECT_FALSE(unseal(longer, key));
  const auto other = unseal(sealed, TokenKey::draw());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::permission_denied);
}

}  // namespace
}  // namespace forebay::fabric
