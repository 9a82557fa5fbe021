// SPDX-License-Identifier: Apache-2.0
// What clients on other nodes may do before and after their proof, as a client that keeps to no rule tries it.
#include <algorithm>
#include <optional>

#include "protocol/carried_bytes.h"
#include "tests/support/message_types.h"
#include "tests/unit/server/daemon/remote_fixture.h"

namespace forebay::testing {
namespace {

/// A server that was told not to encrypt.
class PlainRemoteTest : public RemoteTest {
 protected:
  void SetUp() override {
    options_.encrypts_control = false;
    RemoteTest::SetUp();
  }
};

TEST_F(RemoteTest, nothing_but_a_proof_is_listened_to_first) {
  wire::HelloT local;
  local.version = protocol::protocol_version;
  RawClient greeting = stranger();
  EXPECT_EQ(RawClient::failure(greeting.call(MessageType::hello, local)), ErrorCode::protocol);
  EXPECT_TRUE(greeting.ended());
  RawClient asking = stranger();
  EXPECT_NE(asking.call(MessageType::server_query, wire::ServerQueryT()).type, MessageType::server_answer);
  EXPECT_TRUE(asking.ended());
  RawClient proving = stranger();
  EXPECT_EQ(RawClient::failure(proving.call(MessageType::remote_proof, wire::RemoteProofT())), ErrorCode::protocol);
  EXPECT_TRUE(proving.ended());
  expect_alive();
}

TEST_F(RemoteTest, only_administrators_make_tokens_of_somebody_else) {
  wire::ReservationCreateT theirs;
  theirs.name = "theirs";
  theirs.capacity_bytes = 8 * mib;
  theirs.lifetime = 1;
  theirs.owner_uid = 1234;
  EXPECT_EQ(connect().call(MessageType::reservation_create, theirs).type, MessageType::reservations_answer);
  server::Peer owner;
  owner.uid = 1234;
  server::Peer administrator;
  administrator.administrator = true;
  const auto user_of = [this](const server::Peer& peer, std::optional<std::uint32_t> uid) {
    wire::TokenCreateT asked;
    asked.reservation = "theirs";
    asked.rights = fabric::right_read;
    asked.lifetime_s = 60;
    if (uid) asked.uid = *uid;
    std::optional<std::uint32_t> user;
    in_loop([&](server::Server& server) {
      if (const auto text = server.create_token(peer, asked))
        user = fabric::decode_claims(fabric::parse_token(*text, "the test")->claims)->uid;
    });
    return user;
  };
  EXPECT_EQ(user_of(owner, {}), 1234U);
  EXPECT_EQ(user_of(owner, 1234), 1234U);
  EXPECT_EQ(user_of(owner, 1235), std::nullopt);
  EXPECT_EQ(user_of(owner, 0), std::nullopt);
  EXPECT_EQ(user_of(administrator, 1234), 1234U);
  EXPECT_EQ(user_of(administrator, 1235), 1235U);
}

TEST_F(RemoteTest, every_changed_claim_is_refused) {
  const fabric::Token good = token(fabric::right_read);
  for (std::size_t byte = 0; byte < good.claims.size(); byte += 3) {
    Hello hello{good};
    hello.token.claims[byte] ^= std::byte{1};
    RawClient client = stranger();
    const Message answer = client.call(MessageType::remote_hello, hello.message());
    if (answer.type != MessageType::remote_challenge) {
      EXPECT_TRUE(RawClient::failure(answer)) << "byte " << byte;
      EXPECT_TRUE(client.ended());
      continue;
    }
    const auto agreement = hello.agreement(answer);
    const auto proof = RawClient::unpack<wire::RemoteChallenge>(answer)->proof;
    EXPECT_FALSE(fabric::is_same(agreement.server_proof(), proof)) << "byte " << byte;
    const Message refused = client.call(MessageType::remote_proof, proof_of(agreement));
    EXPECT_EQ(RawClient::failure(refused), ErrorCode::permission_denied) << "byte " << byte;
    EXPECT_TRUE(client.ended());
  }
  expect_alive();
}

TEST_F(RemoteTest, a_recorded_proof_is_refused) {
  const Hello hello{token(fabric::right_read)};
  RawClient first = stranger();
  const auto agreement = hello.agreement(first.call(MessageType::remote_hello, hello.message()));
  const auto recorded = proof_of(agreement);
  const auto request = first.send(MessageType::remote_proof, recorded);
  first.socket().encrypt(agreement.client_cipher());
  EXPECT_EQ(first.answer(request).type, MessageType::welcome);
  RawClient second = stranger();
  EXPECT_EQ(second.call(MessageType::remote_hello, hello.message()).type, MessageType::remote_challenge);
  EXPECT_EQ(RawClient::failure(second.call(MessageType::remote_proof, recorded)), ErrorCode::permission_denied);
  EXPECT_TRUE(second.ended());
}

TEST_F(RemoteTest, nobody_in_between_can_switch_encryption_off) {
  const Hello hello{token(fabric::right_read)};
  RawClient client = stranger();
  const Message answer = client.call(MessageType::remote_hello, hello.message());
  const auto challenge = RawClient::unpack<wire::RemoteChallenge>(answer);
  EXPECT_TRUE(challenge->encrypted);
  EXPECT_TRUE(fabric::is_same(hello.agreement(answer).server_proof(), challenge->proof));
  // What the client believes if the challenge is changed on its way: the server's proof does not fit, nor does its own.
  const auto misled = hello.agreement(*challenge, fabric::ControlEncryption::off);
  EXPECT_FALSE(fabric::is_same(misled.server_proof(), challenge->proof));
  EXPECT_EQ(RawClient::failure(client.call(MessageType::remote_proof, proof_of(misled))), ErrorCode::permission_denied);
  EXPECT_TRUE(client.ended());
}

TEST_F(RemoteTest, messages_that_are_not_encrypted_after_the_proof_end_the_connection) {
  const Hello hello{token(fabric::right_read)};
  RawClient client = stranger();
  const auto agreement = hello.agreement(client.call(MessageType::remote_hello, hello.message()));
  client.send(MessageType::remote_proof, proof_of(agreement));
  client.send(MessageType::heartbeat, wire::HeartbeatT());
  EXPECT_TRUE(client.ended());
  expect_alive();
}

TEST_F(PlainRemoteTest, messages_are_framed_as_before_the_proof_and_both_know) {
  RawClient local = writer();
  write_step(local, 0);
  const Hello hello{token(fabric::right_read)};
  RawClient client = stranger();
  const Message answer = client.call(MessageType::remote_hello, hello.message());
  EXPECT_FALSE(RawClient::unpack<wire::RemoteChallenge>(answer)->encrypted);
  const auto agreement = hello.agreement(answer);
  EXPECT_EQ(agreement.client_cipher(), nullptr);
  EXPECT_EQ(client.call(MessageType::remote_proof, proof_of(agreement)).type, MessageType::welcome);
  EXPECT_EQ(client.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  EXPECT_TRUE(wait_step(client)->step);
}

TEST_F(PlainRemoteTest, a_client_that_was_told_of_encryption_is_refused) {
  const Hello hello{token(fabric::right_read)};
  RawClient client = stranger();
  const Message answer = client.call(MessageType::remote_hello, hello.message());
  const auto challenge = RawClient::unpack<wire::RemoteChallenge>(answer);
  const auto misled = hello.agreement(*challenge, fabric::ControlEncryption::on);
  EXPECT_FALSE(fabric::is_same(misled.server_proof(), challenge->proof));
  EXPECT_EQ(RawClient::failure(client.call(MessageType::remote_proof, proof_of(misled))), ErrorCode::permission_denied);
  EXPECT_TRUE(client.ended());
}

TEST_F(PlainRemoteTest, the_audit_says_that_messages_are_open) {
  const auto found =
      RawClient::unpack<wire::AuditAnswer>(connect().call(MessageType::audit_query, wire::AuditQueryT()));
  const auto said = std::ranges::count_if(found->findings, [](const auto& finding) {
    return finding->what.find("control_encryption") != std::string::npos;
  });
  EXPECT_EQ(said, 1);
  EXPECT_TRUE(problems().empty());  // somebody wanted it so
}

TEST_F(RemoteTest, a_token_ends_when_its_time_is_over) {
  RawClient client = stranger();
  const Hello hello{token(fabric::right_read, 1)};
  const auto agreement = hello.agreement(client.call(MessageType::remote_hello, hello.message()));
  const auto request = client.send(MessageType::remote_proof, proof_of(agreement));
  client.socket().encrypt(agreement.client_cipher());
  EXPECT_EQ(client.answer(request).type, MessageType::welcome);
  EXPECT_TRUE(client.ended());  // also of a connection that was there before
  RawClient later = stranger();
  EXPECT_EQ(RawClient::failure(later.call(MessageType::remote_hello, hello.message())), ErrorCode::permission_denied);
}

TEST_F(RemoteTest, a_revoked_token_is_void_and_others_are_not) {
  const fabric::Token one = token(fabric::right_read);
  const fabric::Token other = token(fabric::right_read);
  RawClient client = admitted(one);
  RawClient stays = admitted(other);
  wire::TokenRevokeT revoke;
  revoke.token = fabric::to_text(one);
  EXPECT_EQ(connect().call(MessageType::token_revoke, revoke).type, MessageType::done);
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(stays.call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
  EXPECT_EQ(connect().call(MessageType::token_revoke, revoke).type, MessageType::done);
  RawClient later = stranger();
  EXPECT_EQ(RawClient::failure(prove(later, one)), ErrorCode::permission_denied);
  // Nobody can revoke a token that they do not have, nor from another node.
  fabric::Token guessed = other;
  guessed.secret[0] ^= 1;
  revoke.token = fabric::to_text(guessed);
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::token_revoke, revoke)), ErrorCode::permission_denied);
  revoke.token = fabric::to_text(other);
  EXPECT_EQ(RawClient::failure(stays.call(MessageType::token_revoke, revoke)), ErrorCode::permission_denied);
  TearDown();
  ServerTest::SetUp();
  RawClient again = stranger();
  EXPECT_EQ(RawClient::failure(prove(again, one)), ErrorCode::permission_denied);
  EXPECT_EQ(admitted(other).call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
}

TEST_F(RemoteTest, a_destroyed_reservation_takes_its_tokens_with_it) {
  const Hello hello{token(fabric::right_read)};
  wire::ReservationDestroyT destroy;
  destroy.name = "res";
  EXPECT_EQ(connect().call(MessageType::reservation_destroy, destroy).type, MessageType::done);
  create("res", 64 * mib);
  RawClient client = stranger();
  const auto agreement = hello.agreement(client.call(MessageType::remote_hello, hello.message()));
  const auto request = client.send(MessageType::remote_proof, proof_of(agreement));
  client.socket().encrypt(agreement.client_cipher());
  EXPECT_EQ(RawClient::failure(client.answer(request)), ErrorCode::permission_denied);
  EXPECT_TRUE(client.ended());
}

TEST_F(RemoteTest, what_rights_do_not_name_is_refused) {
  RawClient client = admitted(fabric::right_read);
  for (std::uint32_t number = 1; number <= static_cast<std::uint32_t>(MessageType::MAX); ++number) {
    const auto type = static_cast<MessageType>(number);
    const bool reads = type == MessageType::streams_query || type == MessageType::steps_query ||
                       type == MessageType::member_query ||
                       (type >= MessageType::reader_open && type <= MessageType::step_poll);
    if (!is_request(type) || reads) continue;
    EXPECT_EQ(RawClient::failure(client.call(type, wire::DoneT())), ErrorCode::permission_denied)
        << wire::EnumNameMessageType(type);
  }
  EXPECT_EQ(client.call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
}

TEST_F(RemoteTest, another_reservation_is_refused) {
  create("other", 64 * mib);
  RawClient client = admitted(fabric::right_read | fabric::right_write);
  wire::StreamsQueryT streams;
  streams.reservation = "other";
  EXPECT_EQ(RawClient::failure(client.call(MessageType::streams_query, streams)), ErrorCode::permission_denied);
  RawClient writer = admitted(fabric::right_write);
  wire::WriterOpenT open = writer_open();
  open.reservation = "other";
  EXPECT_EQ(RawClient::failure(writer.call(MessageType::writer_open, open)), ErrorCode::permission_denied);
}

TEST_F(RemoteTest, a_reader_gets_no_byte_outside_of_the_step) {
  RawClient local = writer();
  write_step(local, 0);
  RawClient client = admitted(fabric::right_read);
  EXPECT_EQ(client.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  const auto event = wait_step(client);
  ASSERT_TRUE(event->step);
  const wire::Extent whole = event->step->parts.front()->metadata.front();
  auto path = data_path(client, false);
  std::vector<std::byte> out(whole.length());
  wire::BytesGetT asked;
  asked.key = std::make_unique<wire::StepKey>(0, 1, 0);
  const auto ask = [&](const wire::Extent& extent) {
    ++asked.ticket;
    asked.extents = {extent};
    client.send(MessageType::bytes_get, asked);
    out.resize(extent.length());
    return path.receive(asked.ticket, fabric::Incoming(out), wait_on);
  };
  EXPECT_TRUE(ask(whole));
  wire::StepGetT get;
  EXPECT_EQ(RawClient::failure(client.call(MessageType::step_get, get)), std::nullopt);
  for (const wire::Extent& extent :
       {wire::Extent(whole.segment(), 0, 0, 1 * mib, 4096), wire::Extent(whole.segment() + 1, 0, 0, 0, 64),
        wire::Extent(whole.segment(), 1, 0, whole.offset(), 64),
        wire::Extent(whole.segment(), 0, 0, std::numeric_limits<std::uint64_t>::max() - 8, 64)}) {
    const auto refused = ask(extent);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::protocol);
    EXPECT_FALSE(path.is_broken());
  }
  asked.key = std::make_unique<wire::StepKey>(7, 1, 0);
  const auto gone = ask(whole);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::step_gone);
}

TEST_F(RemoteTest, a_writer_writes_where_it_was_granted_space_and_nowhere_else) {
  RawClient client = admitted(fabric::right_write);
  EXPECT_EQ(client.call(MessageType::writer_open, writer_open()).type, MessageType::writer_opened);
  wire::SpaceRequestT request;
  request.bytes = 8192;
  const auto granted = RawClient::unpack<wire::SpaceGranted>(client.call(MessageType::space_request, request));
  ASSERT_FALSE(granted->extents.empty());
  EXPECT_TRUE(granted->segments.empty());
  const wire::Extent& space = granted->extents.front();
  const std::vector<std::byte> bytes(4096, std::byte{7});
  auto path = data_path(client, true);
  EXPECT_TRUE(path.write(space.segment(), space.offset(), bytes, wait_on));
  EXPECT_TRUE(path.finish_writes(wait_on));
  // Of these the server ends the path.
  for (const auto& [segment, offset] : {std::pair<std::uint32_t, std::uint64_t>(space.segment(), space.offset() + 8192),
                                        {space.segment() + 1, 0},
                                        {space.segment(), std::uint64_t{1} << 40}}) {
    auto fresh = data_path(client, true);
    (void)fresh.write(segment, offset, bytes, wait_on);
    EXPECT_FALSE(fresh.finish_writes(wait_on)) << segment << " @ " << offset;
  }
  // What became of a step is not the rank's any more.
  wire::PartT part;
  part.extents = {space};
  part.metadata.emplace_back(space.segment(), 0, 0, space.offset(), 64);
  part.metadata_bytes = 64;
  EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
  auto late = data_path(client, true);
  (void)late.write(space.segment(), space.offset(), bytes, wait_on);
  EXPECT_FALSE(late.finish_writes(wait_on));
  expect_alive();
}

TEST_F(RemoteTest, a_small_step_travels_with_its_description) {
  RawClient local = writer();
  write_step(local, 0);
  RawClient client = admitted(fabric::right_read);
  EXPECT_EQ(client.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  const auto event = wait_step(client);
  ASSERT_TRUE(event->step);
  EXPECT_LT(event->step->bytes.size(), event->step->summary->size_bytes()) << "the rest of the last page is zeros";
  protocol::restore_zeros(event->step->carried, event->step->bytes);
  const auto pieces = protocol::carried_pieces(event->step->carried, event->step->bytes);
  ASSERT_TRUE(pieces);
  EXPECT_EQ(event->step->bytes.size(), event->step->summary->size_bytes());
  // The same bytes as those that the data path brings.
  auto path = data_path(client, false);
  wire::BytesGetT asked;
  asked.key = std::make_unique<wire::StepKey>(0, 1, 0);
  for (const protocol::CarriedPiece& piece : *pieces) {
    ++asked.ticket;
    asked.extents = {piece.place};
    client.send(MessageType::bytes_get, asked);
    std::vector<std::byte> out(piece.bytes.size());
    EXPECT_TRUE(path.receive(asked.ticket, fabric::Incoming(out), wait_on));
    EXPECT_TRUE(std::ranges::equal(out, piece.bytes));
  }
  // A local reader reads the file itself.
  RawClient here = connect();
  EXPECT_EQ(here.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  EXPECT_TRUE(wait_step(here)->step->bytes.empty());
}

/// What a remote reader is told of a step that is too large for a message.
class LargeStepTest : public RemoteTest {
 protected:
  auto told(std::uint64_t metadata_bytes) {
    RawClient client = admitted(fabric::right_read | fabric::right_write);
    EXPECT_EQ(client.call(MessageType::writer_open, writer_open()).type, MessageType::writer_opened);
    wire::SpaceRequestT request;
    request.bytes = protocol::carried_bytes_max + 4096;
    const auto granted = RawClient::unpack<wire::SpaceGranted>(client.call(MessageType::space_request, request));
    place_ = granted->extents.front();
    wire::PartT part;
    part.extents = granted->extents;
    part.metadata.emplace_back(place_.segment(), 0, 0, place_.offset(), metadata_bytes);
    part.metadata_bytes = metadata_bytes;
    EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
    RawClient reader = admitted(fabric::right_read);
    EXPECT_EQ(reader.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
    return wait_step(reader);
  }

  wire::Extent place_;
};

TEST_F(LargeStepTest, metadata_travels_with_the_description) {
  const auto event = told(64);
  ASSERT_TRUE(event->step);
  ASSERT_EQ(event->step->carried.size(), 1U);
  EXPECT_EQ(event->step->carried.front().offset(), place_.offset());
  EXPECT_EQ(event->step->carried.front().length(), 64U);
}

TEST_F(LargeStepTest, metadata_that_is_large_itself_is_asked_for) {
  const auto event = told(protocol::carried_bytes_max + 1);
  ASSERT_TRUE(event->step);
  EXPECT_TRUE(event->step->bytes.empty());
  EXPECT_TRUE(event->step->carried.empty());
}

TEST_F(RemoteTest, a_part_carries_bytes_for_its_own_space_and_no_other) {
  RawClient client = admitted(fabric::right_write);
  EXPECT_EQ(client.call(MessageType::writer_open, writer_open()).type, MessageType::writer_opened);
  wire::SpaceRequestT request;
  request.bytes = 8192;
  const auto granted = RawClient::unpack<wire::SpaceGranted>(client.call(MessageType::space_request, request));
  ASSERT_FALSE(granted->extents.empty());
  const wire::Extent space(granted->extents.front().segment(), 0, 0, granted->extents.front().offset(), 4096);
  wire::PartT good;
  good.extents = {space};
  good.metadata.emplace_back(space.segment(), 0, 0, space.offset(), 64);
  good.metadata_bytes = 64;
  good.carried = {space};
  good.bytes.assign(4096, 7);
  const auto refused = [&](const std::vector<wire::Extent>& carried, std::size_t bytes) {
    wire::PartT part = good;
    part.carried = carried;
    part.bytes.assign(bytes, 9);
    return RawClient::failure(client.call(MessageType::part, part));
  };
  const std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(refused({space}, 4095), ErrorCode::protocol);
  EXPECT_EQ(refused({space}, 4097), ErrorCode::protocol);
  EXPECT_EQ(refused({}, 1), ErrorCode::protocol);
  EXPECT_EQ(refused({space}, 0), ErrorCode::protocol);
  // Granted, but not the part's.
  EXPECT_EQ(refused({{space.segment(), 0, 0, space.offset() + 4096, 4096}}, 4096), ErrorCode::protocol);
  EXPECT_EQ(refused({{space.segment() + 1, 0, 0, space.offset(), 4096}}, 4096), ErrorCode::protocol);
  EXPECT_EQ(refused({{space.segment(), 1, 0, space.offset(), 4096}}, 4096), ErrorCode::protocol);
  EXPECT_EQ(refused({{space.segment(), 0, 0, last - 8, 4096}}, 4096), ErrorCode::protocol);
  const std::vector<wire::Extent> often(protocol::carried_bytes_max / 4096 + 1, space);
  EXPECT_EQ(refused(often, often.size() * 4096), ErrorCode::protocol);
  EXPECT_EQ(client.call(MessageType::part, good).type, MessageType::committed);
  // Sent again, as after a restart, it changes nothing.
  wire::PartT again = good;
  again.bytes.assign(4096, 8);
  EXPECT_EQ(client.call(MessageType::part, again).type, MessageType::committed);
  RawClient reader = admitted(fabric::right_read);
  EXPECT_EQ(reader.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  const auto event = wait_step(reader);
  ASSERT_TRUE(event->step);
  EXPECT_EQ(event->step->bytes, good.bytes);
  expect_alive();
}

TEST_F(RemoteTest, a_rank_of_the_servers_node_sends_no_bytes_with_its_part) {
  RawClient local = writer();
  wire::PartT part;
  part.carried.emplace_back(0, 0, 0, 0, 64);
  part.bytes.assign(64, 7);
  EXPECT_EQ(RawClient::failure(local.call(MessageType::part, part)), ErrorCode::protocol);
}

TEST_F(RemoteTest, a_probe_brings_bytes_to_whoever_has_a_token) {
  RawClient client = admitted(fabric::right_write);
  auto path = data_path(client, false);
  wire::ProbeGetT probe;
  probe.ticket = 5;
  probe.bytes = 3 * mib + 1;
  client.send(MessageType::probe_get, probe);
  std::vector<std::byte> out(probe.bytes, std::byte{1});
  EXPECT_TRUE(path.receive(5, fabric::Incoming(out), wait_on));
  EXPECT_TRUE(std::ranges::all_of(out, [](std::byte one) { return one == std::byte{0}; }));
  // The path is open to it, the bytes of steps are not.
  EXPECT_EQ(RawClient::failure(client.call(MessageType::bytes_get, wire::BytesGetT())), ErrorCode::permission_denied);
  probe.bytes = std::numeric_limits<std::uint64_t>::max();
  client.send(MessageType::probe_get, probe);
  EXPECT_TRUE(client.ended());
  RawClient pathless = admitted(fabric::right_read);
  probe.bytes = 1;
  pathless.send(MessageType::probe_get, probe);
  EXPECT_TRUE(pathless.ended());
  expect_alive();
}

}  // namespace
}  // namespace forebay::testing
