// SPDX-License-Identifier: Apache-2.0
// Two servers of a pool inside the test's process, a reservation that lies on both, and clients that keep to no rule.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"
#include "fabric/token.h"
#include "staging-servers/members/home_members.h"
#include "tests/unit/server/daemon/remote_fixture.h"

namespace forebay::testing {

class TwoServersTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  static constexpr std::uint32_t other_user = 61002;

  void SetUp() override {
    log::set_level(log::Level::error);
    const std::string path = directory_.path("pool.key");
    key_ = fabric::TokenKey::draw();
    std::ofstream(path) << key_.to_text();
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    for (std::size_t number = 0; number < servers_.size(); ++number) {
      OneServer& one = servers_[number];
      one.port = free_port();
      one.options.root = directory_.path("root" + std::to_string(number));
      one.options.socket_path = directory_.path("socket" + std::to_string(number));
      one.options.capacity_bytes = 256 * mib;
      one.options.listen = "127.0.0.1:" + one.port;
      one.options.pool_key = path;
      start(number);
      one.uuid =
          RawClient::unpack<wire::ServerAnswer>(local(number).call(MessageType::server_query, wire::ServerQueryT()))
              ->uuid;
    }
    tell();
    wire::ReservationCreateT asked;
    asked.name = "res";
    asked.id = id_;
    asked.lifetime = 1;
    asked.capacity_bytes = 64 * mib;
    for (const OneServer& one : servers_) {
      auto member = std::make_unique<wire::ReservationMemberT>();
      member->server = one.uuid;
      member->capacity_bytes = 32 * mib;
      asked.members.push_back(std::move(member));
    }
    for (const std::size_t number : {1, 0})
      ASSERT_EQ(local(number).call(MessageType::reservation_create, asked).type, MessageType::reservations_answer);
  }

  void TearDown() override {
    for (std::size_t number = 0; number < servers_.size(); ++number)
      if (servers_[number].server) stop(number);
  }

  void start(std::size_t number) {
    OneServer& one = servers_[number];
    auto server = server::Server::start(posix_device(), one.options);
    ASSERT_TRUE(server) << server.error().message();
    one.server = std::move(*server);
    one.thread = std::thread([server = one.server.get()] { server->run(); });
  }

  void stop(std::size_t number) {
    OneServer& one = servers_[number];
    one.server->loop().post([&one] { one.server->stop(); });
    one.thread.join();
    EXPECT_TRUE(one.server->flush_everything());
    one.server.reset();
  }

  /// Says to both where the servers are; perhaps that the member is elsewhere.
  void tell(const std::string& member = {}) {
    wire::PoolDirectoryT directory;
    directory.manager = servers_[0].options.listen;
    for (const OneServer& one : servers_) {
      auto entry = std::make_unique<wire::ServerEntryT>();
      entry->uuid = one.uuid;
      entry->name = "server" + one.port;
      entry->server = &one == &servers_[1] && !member.empty() ? member : one.options.listen;
      directory.servers.push_back(std::move(entry));
    }
    for (std::size_t number = 0; number < servers_.size(); ++number)
      ASSERT_EQ(local(number).call(MessageType::pool_directory, directory).type, MessageType::done);
  }

  /// A client of that server's node.
  RawClient local(std::size_t number) { return RawClient(servers_[number].options.socket_path); }
  /// One that comes over the network with this.
  RawClient remote(std::size_t number, const fabric::Token& token) {
    auto socket = fabric::connect_tcp("127.0.0.1", servers_[number].port, Deadline::after_ms(remote_deadline_ms),
                                      [] { return Result<void>(); });
    EXPECT_TRUE(socket);
    RawClient client(std::move(*socket));
    const Hello hello{token};
    const auto agreement = hello.agreement(client.call(MessageType::remote_hello, hello.message()));
    const auto request = client.send(MessageType::remote_proof, proof_of(agreement));
    client.socket().encrypt(agreement.client_cipher());
    EXPECT_EQ(client.answer(request).type, MessageType::welcome);
    return client;
  }

  /// What a server of the pool says of a user.
  fabric::Token introduction(std::uint32_t uid, bool administrator = false) {
    fabric::PoolClaims claims;
    claims.key_id = key_.id;
    claims.uid = uid;
    claims.gid = uid;
    claims.administrator = administrator;
    claims.expires_ns = wall_clock_ns() + std::int64_t{60} * 1'000'000'000;
    claims.serial = random_number();
    fabric::Token token;
    token.claims = fabric::encode(claims);
    token.secret = key_.secret_of(token.claims);
    return token;
  }

  void share(std::uint32_t uid, Rights rights) {
    wire::ReservationShareT asked;
    asked.name = "res";
    asked.share = std::make_unique<wire::ShareT>();
    asked.share->kind = static_cast<std::uint8_t>(Share::Kind::user);
    asked.share->id = uid;
    asked.share->rights = static_cast<std::uint8_t>(rights);
    ASSERT_EQ(local(0).call(MessageType::reservation_share, asked).type, MessageType::reservations_answer);
  }

  std::string create_token(std::uint32_t rights) {
    wire::TokenCreateT asked;
    asked.reservation = "res";
    asked.rights = rights;
    asked.lifetime_s = 3600;
    return RawClient::unpack<wire::TokenAnswer>(local(0).call(MessageType::token_create, asked))->token;
  }

  static wire::WriterOpenT writer_open(const std::string& stream = "flow") {
    wire::WriterOpenT asked;
    asked.reservation = "res";
    asked.stream = stream;
    asked.mode = 2;
    asked.ranks = 1;
    asked.ranks_source = "the test";
    asked.when_full = static_cast<std::uint8_t>(WhenFull::error);
    asked.durability = 1;
    asked.open_timeout_ms = remote_deadline_ms;
    return asked;
  }

  void make_stream() {
    RawClient writer = local(0);
    ASSERT_EQ(writer.call(MessageType::writer_open, writer_open()).type, MessageType::writer_opened);
    ASSERT_EQ(writer.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  }

  /// Opens the stream there, which `make_stream` has made.
  static void open_to_read(RawClient& client) {
    wire::ReaderOpenT asked;
    asked.reservation = "res";
    asked.stream = "flow";
    asked.start_kind = static_cast<std::uint8_t>(Start::Kind::cursor);
    asked.min_watermark = 1;
    asked.follow = true;
    asked.open_timeout_ms = remote_deadline_ms;
    ASSERT_EQ(client.call(MessageType::reader_open, asked).type, MessageType::reader_opened);
  }

  /// What the home gives a reader or a writer for the member, once that is there.
  wire::MemberAnswerT introduced(RawClient& client) {
    wire::MemberQueryT query;
    query.member = 1;
    const Deadline deadline = Deadline::after_ms(remote_deadline_ms);
    while (true) {
      const Message answer = client.call(MessageType::member_query, query);
      if (answer.type == MessageType::member_answer) return *RawClient::unpack<wire::MemberAnswer>(answer);
      if (deadline.passed() || RawClient::failure(answer) != ErrorCode::unavailable) {
        ADD_FAILURE() << wire::EnumNameMessageType(answer.type);
        return {};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  static fabric::Token token_in(const wire::MemberAnswerT& answer) {
    fabric::Token token;
    const auto claims = std::as_bytes(std::span(answer.claims));
    token.claims.assign(claims.begin(), claims.end());
    std::ranges::copy(answer.secret, token.secret.begin());
    return token;
  }

  /// The member's answer to a permit.
  Message show(RawClient& client, const std::vector<std::uint8_t>& permit) {
    wire::MemberOpenT open;
    open.permit = permit;
    return client.call(MessageType::member_open, open);
  }

  /// Is the permit void, within the time in which a fence arrives?
  bool becomes_void(const wire::MemberAnswerT& answer, const std::vector<std::uint8_t>& permit) {
    const Deadline deadline = Deadline::after_ms(10'000);
    while (!deadline.passed()) {
      RawClient client = remote(1, token_in(answer));
      if (RawClient::failure(show(client, permit)) == ErrorCode::unavailable) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  bool is_good(const wire::MemberAnswerT& answer, const std::vector<std::uint8_t>& permit) {
    RawClient client = remote(1, token_in(answer));
    return show(client, permit).type == MessageType::member_opened;
  }

  /// Does that with what the home knows of the member, in the home's loop.
  void at_home(const std::function<void(server::HomeMembers&)>& task) {
    std::promise<void> done;
    server::Server& home = *servers_[0].server;
    home.loop().post([&] {
      server::Reservation& reservation = *home.reservations().all().at("res");
      task(dynamic_cast<server::HomeMembers&>(*reservation.space().segments().others()));
      done.set_value();
    });
    done.get_future().wait();
  }

  bool is_away() {
    bool away = false;
    at_home([&](server::HomeMembers& members) { away = members.absence(1) != nullptr; });
    return away;
  }

  /// Becomes true within the deadline.
  template <class Condition>
  static bool until(Condition&& condition) {
    const Deadline deadline = Deadline::after_ms(remote_deadline_ms);
    while (!deadline.passed()) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  struct OneServer {
    server::ServerOptions options;
    std::string port;
    std::string uuid;
    std::unique_ptr<server::Server> server;
    std::thread thread;
  };
  TemporaryDirectory directory_;
  fabric::TokenKey key_;
  const std::string id_ = "01234567-89ab-4def-8123-456789abcdef";
  std::array<OneServer, 2> servers_;
};

}  // namespace forebay::testing
