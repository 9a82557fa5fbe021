// SPDX-License-Identifier: Apache-2.0
// Servers of a pool let in each other's clients, and nobody else. See docs/design/many-servers.md.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <atomic>
#include <future>

#include <forebay/admin.h>

#include "staging-servers/members/member_call.h"
#include "tests/unit/server/daemon/pool_fixture.h"

namespace forebay::testing {
namespace {

constexpr const char* elsewhere = "10.0.0.7:7460";

class PoolTest : public PoolFixture {
 protected:
  std::string id() {
    wire::ReservationsQueryT query;
    query.name = "res";
    const auto answer =
        RawClient::unpack<wire::ReservationsAnswer>(connect().call(MessageType::reservations_query, query));
    return answer->reservations.at(0)->id;
  }

  /// Of its hello, or of its proof; nothing if it is let in.
  std::optional<ErrorCode> refusal(const fabric::Token& token) {
    RawClient client = stranger();
    const Hello hello{token};
    const auto challenge = client.call(MessageType::remote_hello, hello.message());
    if (challenge.type != MessageType::remote_challenge) return RawClient::failure(challenge);
    const auto agreement = hello.agreement(challenge);
    const auto request = client.send(MessageType::remote_proof, proof_of(agreement));
    client.socket().encrypt(agreement.client_cipher());
    const auto answer = client.answer(request);
    if (answer.type == MessageType::welcome) return std::nullopt;
    // What refuses a proof is not encrypted, and cannot be read any more.
    return RawClient::failure(answer).value_or(ErrorCode::permission_denied);
  }

  wire::PoolDirectoryT directory(const std::string& name = "far") {
    wire::PoolDirectoryT directory;
    directory.manager = "10.0.0.1:7460";
    auto entry = std::make_unique<wire::HomeEntryT>();
    entry->name = name;
    entry->id = "01234567-89ab-cdef-0123-456789abcdef";
    entry->server = elsewhere;
    directory.homes.push_back(std::move(entry));
    return directory;
  }

  std::unique_ptr<wire::HomeAnswerT> home(const std::string& reservation) {
    wire::HomeQueryT query;
    query.reservation = reservation;
    return RawClient::unpack<wire::HomeAnswer>(connect().call(MessageType::home_query, query));
  }
};

TEST_F(PoolTest, claims_are_read_as_they_were_written_and_damaged_ones_never) {
  fabric::PoolClaims claims = this->claims();
  claims.groups = {4, 7, 100000};
  claims.reservation_id = id();
  claims.administrator = true;
  const auto encoded = fabric::encode(claims);
  EXPECT_TRUE(fabric::are_pool_claims(encoded));
  EXPECT_EQ(*fabric::decode_pool_claims(encoded), claims);
  for (std::size_t size = 0; size < encoded.size(); ++size)
    EXPECT_FALSE(fabric::decode_pool_claims(std::span(encoded).first(size))) << size;
  auto longer = encoded;
  longer.push_back({});
  EXPECT_FALSE(fabric::decode_pool_claims(longer));
  auto promising = encoded;  // more groups than there are, and than there may be
  promising[40] = std::byte{4};
  EXPECT_FALSE(fabric::decode_pool_claims(promising));
  promising[43] = std::byte{0x7f};
  EXPECT_FALSE(fabric::decode_pool_claims(promising));
  claims.groups.assign(fabric::pool_groups_max + 9, 1);
  EXPECT_EQ(fabric::decode_pool_claims(fabric::encode(claims))->groups.size(), fabric::pool_groups_max);
}

TEST_F(PoolTest, an_introduced_user_has_the_rights_of_that_user) {
  // Of another user, who is in no group of the owner's.
  RawClient strange = admitted(made_of(claims()));
  EXPECT_EQ(RawClient::failure(strange.call(MessageType::reader_open, reader_open())), ErrorCode::permission_denied);
  RawClient asking = admitted(made_of(claims()));
  wire::StreamsQueryT query;
  query.reservation = "res";
  EXPECT_EQ(RawClient::failure(asking.call(MessageType::streams_query, query)), ErrorCode::permission_denied);
  // In a group with the right to read, and only for what is meant.
  wire::ReservationShareT share;
  share.name = "res";
  share.share = std::make_unique<wire::ShareT>();
  share.share->kind = static_cast<std::uint8_t>(Share::Kind::group);
  share.share->id = 4321;
  share.share->rights = static_cast<std::uint8_t>(Rights::read);
  ASSERT_EQ(connect().call(MessageType::reservation_share, share).type, MessageType::reservations_answer);
  fabric::PoolClaims member = claims();
  member.groups = {4321};
  EXPECT_EQ(admitted(made_of(member)).call(MessageType::streams_query, query).type, MessageType::streams_answer);
  EXPECT_EQ(RawClient::failure(admitted(made_of(member)).call(MessageType::writer_open, writer_open())),
            ErrorCode::permission_denied);
  member.reservation_id = id();
  member.serial = random_number();
  EXPECT_EQ(admitted(made_of(member)).call(MessageType::streams_query, query).type, MessageType::streams_answer);
  member.reservation_id = "01234567-89ab-cdef-0123-456789abcdef";
  member.serial = random_number();
  EXPECT_EQ(RawClient::failure(admitted(made_of(member)).call(MessageType::streams_query, query)),
            ErrorCode::permission_denied);
}

TEST_F(PoolTest, a_right_that_is_taken_away_ends_what_an_introduced_user_reads) {
  const auto give = [&](Rights rights) {
    wire::ReservationShareT share;
    share.name = "res";
    share.share = std::make_unique<wire::ShareT>();
    share.share->kind = static_cast<std::uint8_t>(Share::Kind::user);
    share.share->id = claims().uid;
    share.share->rights = static_cast<std::uint8_t>(rights);
    EXPECT_EQ(connect().call(MessageType::reservation_share, share).type, MessageType::reservations_answer);
  };
  give(Rights::read);
  RawClient local = writer();
  write_step(local, 0);
  RawClient reader = admitted(made_of(claims()));
  ASSERT_EQ(reader.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  give(Rights::none);
  EXPECT_TRUE(reader.ended());
  RawClient again = admitted(made_of(claims()));
  EXPECT_EQ(RawClient::failure(again.call(MessageType::reader_open, reader_open())), ErrorCode::permission_denied);
}

TEST_F(PoolTest, only_administrators_say_what_the_manager_says) {
  for (const bool administrator : {false, true}) {
    fabric::PoolClaims claims = this->claims();
    claims.administrator = administrator;
    RawClient client = admitted(made_of(claims));
    const auto told = client.call(MessageType::pool_directory, directory());
    EXPECT_EQ(told.type == MessageType::done, administrator);
    EXPECT_EQ(RawClient::failure(client.call(MessageType::audit_query, wire::AuditQueryT())).has_value(),
              !administrator);
  }
}

TEST_F(PoolTest, claims_of_another_key_too_old_or_changed_are_refused) {
  fabric::PoolClaims old = claims();
  old.expires_ns = wall_clock_ns() - 1;
  EXPECT_EQ(refusal(made_of(old)), ErrorCode::permission_denied);
  fabric::PoolClaims foreign = claims();
  foreign.key_id += 1;
  EXPECT_EQ(refusal(made_of(foreign)), ErrorCode::permission_denied);
  // Whoever has claims cannot make others of them.
  fabric::Token changed = made_of(claims());
  fabric::PoolClaims more = *fabric::decode_pool_claims(changed.claims);
  more.administrator = true;
  changed.claims = fabric::encode(more);
  EXPECT_TRUE(refusal(changed).has_value());
  // Nor of a token, which another key makes.
  fabric::Token mixed = token(fabric::right_read);
  mixed.claims = fabric::encode(claims());
  EXPECT_TRUE(refusal(mixed).has_value());
  EXPECT_EQ(refusal(made_of(claims())), std::nullopt);
}

TEST_F(PoolTest, names_lead_elsewhere_unless_the_reservation_is_here) {
  EXPECT_EQ(home("far")->server, "");
  ASSERT_EQ(connect().call(MessageType::pool_directory, directory()).type, MessageType::done);
  const auto found = home("far");
  EXPECT_EQ(found->server, elsewhere);
  const auto* begin = reinterpret_cast<const std::byte*>(found->claims.data());
  const auto claims = fabric::decode_pool_claims({begin, found->claims.size()});
  ASSERT_TRUE(claims);
  EXPECT_EQ(claims->uid, ::geteuid());
  EXPECT_EQ(claims->reservation_id, directory().homes[0]->id);
  EXPECT_EQ(home("res")->server, "");
  ASSERT_EQ(connect().call(MessageType::pool_directory, directory("res")).type, MessageType::done);
  EXPECT_EQ(home("res")->server, "");
  EXPECT_EQ(home("far")->server, "");
}

TEST_F(PoolTest, who_was_introduced_is_introduced_for_no_longer) {
  ASSERT_EQ(connect().call(MessageType::pool_directory, directory()).type, MessageType::done);
  for (const bool administrator : {false, true}) {
    fabric::PoolClaims own = claims();
    own.administrator = administrator;
    RawClient client = admitted(made_of(own));
    wire::HomeQueryT query;
    query.reservation = administrator ? "" : "far";
    query.server = administrator ? elsewhere : "";
    query.administrator = administrator;
    const auto found = RawClient::unpack<wire::HomeAnswer>(client.call(MessageType::home_query, query));
    EXPECT_EQ(found->server, elsewhere);
    const auto next = fabric::decode_pool_claims(std::as_bytes(std::span(found->claims)));
    ASSERT_TRUE(next);
    EXPECT_EQ(next->expires_ns, own.expires_ns);
  }
}

TEST_F(PoolTest, a_member_is_asked_only_where_the_server_has_its_root) {
  fabric::PoolClaims own = claims();
  own.administrator = true;
  const auto uuid =
      RawClient::unpack<wire::ServerAnswer>(connect().call(MessageType::server_query, wire::ServerQueryT()))->uuid;
  const std::atomic<bool> ending = false;
  const auto open = [&](const std::string& root) {
    return server::MemberCall::open("127.0.0.1:" + port_, root, made_of(own), Deadline::after_ms(remote_deadline_ms),
                                    ending);
  };
  EXPECT_TRUE(open(uuid));
  // Somebody who listens where a server is down may pass on to another one of the pool.
  const auto other = open("01234567-89ab-4def-8123-456789abcdef");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::refused);
}

TEST_F(PoolTest, who_listens_in_a_members_place_and_proves_nothing_sends_a_few_kilobytes) {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), place, length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), place, &length), 0);
  fabric::PoolClaims own = claims();
  own.administrator = true;
  const std::atomic<bool> ending = false;
  auto asking = std::async(std::launch::async, [&] {
    return server::MemberCall::open("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), random_uuid(), made_of(own),
                                    Deadline::after_ms(remote_deadline_ms), ending);
  });
  const Descriptor impostor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(impostor.valid());
  protocol::Header header;
  header.type = static_cast<std::uint16_t>(MessageType::remote_challenge);
  header.body_bytes = 8192;
  header.request = 1;
  ASSERT_EQ(::send(impostor.get(), &header, sizeof header, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof header));
  // It is not waited for what does not come.
  const auto opened = asking.get();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::protocol) << opened.error().message();
}

TEST_F(PoolTest, a_directory_with_nonsense_is_refused_whole) {
  ASSERT_EQ(connect().call(MessageType::pool_directory, directory()).type, MessageType::done);
  for (const auto& spoil : std::vector<std::function<void(wire::PoolDirectoryT&)>>{
           [](auto& spoilt) { spoilt.homes[0]->name = "a/b"; },
           [](auto& spoilt) { spoilt.homes[0]->id = "7"; },
           [](auto& spoilt) { spoilt.homes[0]->server = "nowhere"; },
           [](auto& spoilt) { spoilt.manager = "nobody"; },
       }) {
    wire::PoolDirectoryT spoilt = directory("other");
    spoil(spoilt);
    EXPECT_EQ(RawClient::failure(connect().call(MessageType::pool_directory, spoilt)), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(home("far")->server, elsewhere);
}

TEST_F(PoolTest, a_credential_of_munge_that_is_none_is_refused) {
  fabric::Token token;
  token.claims = fabric::munge_claims("MUNGE:this is none:");
  EXPECT_TRUE(refusal(token).has_value());
  expect_alive();
}

TEST_F(PoolTest, a_call_to_a_manager_that_is_not_there_says_so) {
  wire::ManagerCallT call;
  call.method = "GET";
  call.target = "/health";
  EXPECT_EQ(RawClient::failure(admitted(made_of(claims())).call(MessageType::manager_call, call)),
            ErrorCode::disconnected);
  for (const auto& [method, target] : std::vector<std::pair<std::string, std::string>>{
           {"PUT", "/health"}, {"GET", "health"}, {"GET", "/a b"}, {"GET", "/a\r\nforebay-for: 0 0 "}, {"GET", ""}}) {
    call.method = method;
    call.target = target;
    EXPECT_EQ(RawClient::failure(admitted(made_of(claims())).call(MessageType::manager_call, call)),
              ErrorCode::invalid_argument)
        << target;
  }
}

using WithoutPool = RemoteTest;

TEST_F(WithoutPool, nobody_is_introduced_and_no_name_leads_elsewhere) {
  fabric::PoolClaims claims;
  claims.uid = ::geteuid();
  claims.administrator = true;
  claims.expires_ns = wall_clock_ns() + std::int64_t{60} * 1'000'000'000;
  fabric::Token token;
  token.claims = fabric::encode(claims);
  RawClient client = stranger();
  EXPECT_EQ(RawClient::failure(client.call(MessageType::remote_hello, Hello{token}.message())),
            ErrorCode::permission_denied);
  wire::HomeQueryT query;
  query.reservation = "far";
  const auto answer = RawClient::unpack<wire::HomeAnswer>(connect().call(MessageType::home_query, query));
  EXPECT_EQ(answer->server, "");
  EXPECT_TRUE(answer->claims.empty());
  wire::PoolDirectoryT directory;
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::pool_directory, directory)), ErrorCode::refused);
}

}  // namespace
}  // namespace forebay::testing
