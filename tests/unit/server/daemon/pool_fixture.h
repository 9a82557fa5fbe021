// SPDX-License-Identifier: Apache-2.0
// A server that belongs to a pool, whose key the test has.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/uuid.h"
#include "tests/unit/server/daemon/remote_fixture.h"

namespace forebay::testing {

class PoolFixture : public RemoteTest {
 protected:
  void SetUp() override {
    const std::string path = keys_.path() + "/pool.key";
    key_ = fabric::TokenKey::draw();
    std::ofstream(path) << key_.to_text();
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    options_.pool_key = path;
    RemoteTest::SetUp();
  }

  fabric::PoolClaims claims() {
    fabric::PoolClaims claims;
    claims.key_id = key_.id;
    claims.uid = ::geteuid() + 1;
    claims.gid = claims.uid;
    claims.expires_ns = wall_clock_ns() + std::int64_t{60} * 1'000'000'000;
    claims.serial = random_number();
    return claims;
  }

  fabric::Token made_of(const fabric::PoolClaims& claims) {
    fabric::Token token;
    token.claims = fabric::encode(claims);
    token.secret = key_.secret_of(token.claims);
    return token;
  }

  /// Of this server's root.
  std::string own_uuid() {
    return RawClient::unpack<wire::ServerAnswer>(connect().call(MessageType::server_query, wire::ServerQueryT()))->uuid;
  }

  /// Makes a reservation whose members are the servers with these roots; what this server says of it.
  std::unique_ptr<wire::ReservationT> make_spread(const std::string& name, const std::vector<std::string>& roots) {
    wire::ReservationCreateT asked;
    asked.name = name;
    asked.capacity_bytes = roots.size() * 16 * mib;
    asked.lifetime = 1;
    asked.id = random_uuid();
    for (const std::string& root : roots) {
      auto member = std::make_unique<wire::ReservationMemberT>();
      member->server = root;
      member->capacity_bytes = 16 * mib;
      asked.members.push_back(std::move(member));
    }
    auto answer = RawClient::unpack<wire::ReservationsAnswer>(connect().call(MessageType::reservation_create, asked));
    return std::move(answer->reservations.at(0));
  }

  TemporaryDirectory keys_;
  fabric::TokenKey key_;
};

}  // namespace forebay::testing
