// SPDX-License-Identifier: Apache-2.0
// What clients on other nodes may take of a server, and how long they may be silent. docs/operations/remote.md has the
// table.
#include <sys/resource.h>

#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

#include "fabric/data_ticket.h"
#include "tests/unit/server/daemon/remote_fixture.h"

namespace forebay::testing {
namespace {

TEST_F(RemoteTest, a_long_message_before_the_proof_ends_the_connection) {
  RawClient client = stranger();
  Hello hello{token(fabric::right_read)};
  hello.token.claims.resize(8192);
  client.send(MessageType::remote_hello, hello.message());
  EXPECT_TRUE(client.ended());
  expect_alive();
}

TEST_F(RemoteTest, a_client_that_waits_for_no_answer_is_sent_away) {
  RawClient client = admitted(fabric::right_write);
  EXPECT_EQ(client.call(MessageType::writer_open, writer_open()).type, MessageType::writer_opened);
  RawClient reader = connect();  // asks for nothing, and is behind from the first step on
  EXPECT_EQ(reader.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  for (std::uint64_t step = 0; step < 3; ++step) {
    wire::SpaceRequestT space;
    space.step = step;
    space.bytes = 4096;
    const auto granted = RawClient::unpack<wire::SpaceGranted>(client.call(MessageType::space_request, space));
    wire::PartT part;
    part.step = step;
    part.extents = granted->extents;
    part.metadata.emplace_back(granted->extents.front().segment(), 0, 0, granted->extents.front().offset(), 64);
    part.metadata_bytes = 64;
    EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
  }
  wire::StepBeginT begin;
  begin.step = 3;
  begin.lag_limit = 1;
  begin.timeout_ms = 3'600'000;
  constexpr int requests_max = 256;
  for (int i = 0; i < requests_max; ++i) client.send(MessageType::step_begin, begin);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::step_begin, begin)), ErrorCode::busy);
  EXPECT_TRUE(client.ended());
  expect_alive();
}

TEST_F(RemoteTest, connections_with_one_token_are_bounded) {
  constexpr std::size_t connections_max = 512;
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  const fabric::Token one = token(fabric::right_read);
  std::vector<RawClient> clients;
  for (std::size_t i = 0; i < connections_max; ++i) {
    clients.push_back(stranger());
    ASSERT_EQ(prove(clients.back(), one).type, MessageType::welcome) << i;
  }
  RawClient refused = stranger();
  EXPECT_EQ(RawClient::failure(prove(refused, one)), ErrorCode::busy);
  EXPECT_TRUE(refused.ended());
  // Another client is let in, and so is this one when others have left.
  EXPECT_EQ(admitted(fabric::right_read).call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
  clients.pop_back();
  const Deadline deadline = Deadline::after_ms(remote_deadline_ms);
  bool let_in = false;
  while (!let_in && !deadline.passed()) {  // the server notices soon
    RawClient again = stranger();
    let_in = prove(again, one).type == MessageType::welcome;
  }
  EXPECT_TRUE(let_in);
}

TEST_F(RemoteTest, a_long_message_after_the_proof_ends_the_connection) {
  RawClient client = admitted(fabric::right_write);
  wire::PartT part;
  part.bytes.assign(5 * mib, 1);
  client.send(MessageType::part, part);
  EXPECT_TRUE(client.ended());
  expect_alive();
}

TEST_F(RemoteTest, who_asks_for_paths_again_and_again_keeps_no_other_out) {
  constexpr int requests = 600;  // more than the server has paths
  RawClient client = admitted(fabric::right_read);
  const auto first = ticket(client, false);
  auto last = first;
  for (int i = 0; i < requests; ++i) last = ticket(client, false);
  RawClient other = admitted(fabric::right_read);
  EXPECT_FALSE(ticket(other, false).empty());
  RawClient late = stranger();
  EXPECT_EQ(RawClient::failure(late.call(MessageType::data_hello, data_hello(first))), ErrorCode::permission_denied);
  RawClient greeting = stranger();
  EXPECT_EQ(greeting.call(MessageType::data_hello, data_hello(last)).type, MessageType::done);
}

TEST_F(RemoteTest, a_ticket_is_good_once) {
  RawClient client = admitted(fabric::right_read);
  const auto drawn = ticket(client, false);
  RawClient first = stranger();
  EXPECT_EQ(first.call(MessageType::data_hello, data_hello(drawn)).type, MessageType::done);
  RawClient second = stranger();
  EXPECT_EQ(RawClient::failure(second.call(MessageType::data_hello, data_hello(drawn))), ErrorCode::permission_denied);
  RawClient guess = stranger();
  const std::vector<std::uint8_t> other(32, 1);
  EXPECT_EQ(RawClient::failure(guess.call(MessageType::data_hello, data_hello(other))), ErrorCode::permission_denied);
}

class FewStrangersTest : public RemoteTest {
 protected:
  FewStrangersTest() { options_.remote_limits.strangers = 64; }
};

TEST_F(FewStrangersTest, strangers_are_few_and_keep_nobody_out) {
  std::vector<RawClient> strangers;
  for (int count = 0; count < 80; ++count) strangers.push_back(stranger());
  // The oldest go, and who proves in time who it is comes in.
  EXPECT_TRUE(strangers.front().ended());
  EXPECT_EQ(admitted(fabric::right_read).call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
  expect_alive();
}

TEST_F(FewStrangersTest, who_has_said_hello_has_time_to_prove_it_however_many_say_nothing) {
  RawClient slow = stranger();
  const Hello hello{token(fabric::right_read)};
  const auto challenge = slow.call(MessageType::remote_hello, hello.message());
  ASSERT_EQ(challenge.type, MessageType::remote_challenge);
  std::vector<RawClient> strangers;
  for (int count = 0; count < 80; ++count) strangers.push_back(stranger());
  EXPECT_TRUE(strangers.front().ended());
  const auto agreement = hello.agreement(challenge);
  const auto request = slow.send(MessageType::remote_proof, proof_of(agreement));
  slow.socket().encrypt(agreement.client_cipher());
  EXPECT_EQ(slow.answer(request).type, MessageType::welcome);
  // Those that say hello and prove nothing make room for one another.
  std::vector<RawClient> challenged;
  for (int count = 0; count < 80; ++count) {
    challenged.push_back(stranger());
    const Hello again{token(fabric::right_read)};
    ASSERT_EQ(challenged.back().call(MessageType::remote_hello, again.message()).type, MessageType::remote_challenge);
  }
  EXPECT_TRUE(challenged.front().ended());
  EXPECT_EQ(admitted(fabric::right_read).call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
}

TEST_F(RemoteTest, a_client_that_reads_no_answers_is_sent_away) {
  RawClient writer = admitted(fabric::right_write);
  EXPECT_EQ(writer.call(MessageType::writer_open, writer_open()).type, MessageType::writer_opened);
  wire::PartT part = part_of(writer, 0, 60'000);
  part.carried = part.extents;
  part.bytes.assign(61'440, 7);
  EXPECT_EQ(writer.call(MessageType::part, part).type, MessageType::committed);
  RawClient client = admitted(fabric::right_read);
  EXPECT_EQ(client.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  ASSERT_EQ(wait_step(client)->step->bytes.size(), 61'440U);
  // Each answer brings the step's bytes. What the sockets hold comes on top of what the server keeps.
  constexpr std::uint64_t kept_bytes_max = 16 * mib;
  constexpr std::uint64_t sockets_bytes_max = 64 * mib;
  wire::StepGetT get;
  std::uint64_t asked_bytes = 0;
  while (asked_bytes < kept_bytes_max + sockets_bytes_max) {
    client.send(MessageType::step_get, get);
    asked_bytes += 61'440;
  }
  // Whoever reads while the server still deals with the requests would be a client that reads its answers.
  RawClient other = connect();
  EXPECT_TRUE(comes_true([&] {
    const auto info =
        RawClient::unpack<wire::ServerAnswer>(other.call(MessageType::server_query, wire::ServerQueryT()));
    return info->clients == 2;  // the writer and this one
  }));
  EXPECT_TRUE(client.ended());
  expect_alive();
}

TEST_F(RemoteTest, a_client_that_takes_no_bytes_may_ask_for_few_more) {
  RawClient client = admitted(fabric::right_read);
  auto path = data_path(client, false);
  wire::ProbeGetT probe;
  probe.bytes = 64 * mib;
  for (probe.ticket = 1; probe.ticket <= 2 * fabric::ServerPath::transfers_max; ++probe.ticket)
    client.send(MessageType::probe_get, probe);
  EXPECT_TRUE(client.ended());
  expect_alive();
}

/// How many descriptors of segments this process has.
std::size_t segments_open() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    count += !gone && target.string().find("/segments/") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST_F(RemoteTest, requests_for_bytes_that_nobody_takes_share_their_descriptors) {
  RawClient writer = this->writer();
  const wire::PartT part = part_of(writer, 0, 8 * mib);
  ASSERT_EQ(writer.call(MessageType::part, part).type, MessageType::committed);
  const std::size_t before = segments_open();
  RawClient client = admitted(fabric::right_read);
  ASSERT_EQ(client.call(MessageType::reader_open, reader_open()).type, MessageType::reader_opened);
  ASSERT_TRUE(wait_step(client)->step);
  wire::BytesGetT asked;
  asked.key = std::make_unique<wire::StepKey>(0, 1, 0);
  asked.extents = part.extents;
  std::set<std::uint32_t> segments;
  for (const wire::Extent& extent : part.extents) segments.insert(extent.segment());
  {
    auto path = data_path(client, false);
    for (asked.ticket = 1; asked.ticket <= 40; ++asked.ticket) client.send(MessageType::bytes_get, asked);
    // Each request before this one was dealt with.
    EXPECT_EQ(client.call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
    EXPECT_LE(segments_open(), before + segments.size());
  }
  // What was asked for on a path that has ended is not kept.
  EXPECT_TRUE(comes_true([&] { return segments_open() == before; }));
  EXPECT_EQ(client.call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
  expect_alive();
}

/// A server of few clients.
class SmallRemoteTest : public RemoteTest {
 protected:
  void SetUp() override {
    options_.fabric = "tcp";
    options_.fabric_peers = "trusted";
    options_.remote_limits.clients = 6;
    options_.remote_limits.data_paths = 3;
    options_.remote_limits.token_data_paths = 2;
    options_.remote_limits.fabric_paths = 0;
    RemoteTest::SetUp();
  }

  /// What a connection with this token is told when it asks for a data path; nothing if it gets a ticket.
  std::optional<ErrorCode> refusal(RawClient& client) {
    return RawClient::failure(client.call(MessageType::data_open, wire::DataOpenT()));
  }
};

TEST_F(SmallRemoteTest, clients_of_other_nodes_are_bounded_and_keep_nobody_out_of_the_local_socket) {
  std::vector<RawClient> clients;
  for (int count = 0; count < 6; ++count) clients.push_back(admitted(fabric::right_read));
  RawClient refused = stranger();
  EXPECT_EQ(RawClient::failure(prove(refused, token(fabric::right_read))), ErrorCode::busy);
  EXPECT_TRUE(refused.ended());
  EXPECT_EQ(clients.front().call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
  expect_alive();
  const fabric::Token one = token(fabric::right_read);
  clients.pop_back();
  EXPECT_TRUE(comes_true([&] {
    RawClient next = stranger();
    return prove(next, one).type == MessageType::welcome;
  }));
}

TEST_F(SmallRemoteTest, data_paths_with_one_token_are_bounded) {
  const fabric::Token one = token(fabric::right_read);
  RawClient first = admitted(one);
  RawClient second = admitted(one);
  RawClient third = admitted(one);
  const auto of_first = data_path(first, false);
  const auto of_second = data_path(second, false);
  EXPECT_EQ(refusal(third), ErrorCode::busy);
  // Another client gets one.
  {
    RawClient other = admitted(fabric::right_read);
    EXPECT_EQ(refusal(other), std::nullopt);
  }
  // A connection exchanges its own, and one that goes makes room.
  const auto again = data_path(second, false);
  first.send(MessageType::none, wire::DoneT());
  EXPECT_TRUE(first.ended());
  EXPECT_TRUE(comes_true([&] { return !refusal(third); }));
}

TEST_F(SmallRemoteTest, tickets_count_as_the_paths_that_they_are_for) {
  const fabric::Token one = token(fabric::right_read);
  RawClient first = admitted(one);
  RawClient second = admitted(one);
  RawClient third = admitted(one);
  const auto old = ticket(first, false);
  EXPECT_EQ(refusal(second), std::nullopt);
  EXPECT_EQ(refusal(third), ErrorCode::busy);
  // A connection has one ticket: the last.
  const auto drawn = ticket(first, false);
  RawClient late = stranger();
  EXPECT_EQ(RawClient::failure(late.call(MessageType::data_hello, data_hello(old))), ErrorCode::permission_denied);
  RawClient greeting = stranger();
  EXPECT_EQ(greeting.call(MessageType::data_hello, data_hello(drawn)).type, MessageType::done);
}

TEST_F(SmallRemoteTest, data_paths_of_all_clients_are_bounded) {
  RawClient first = admitted(fabric::right_read);
  RawClient second = admitted(fabric::right_read);
  RawClient third = admitted(fabric::right_read);
  RawClient refused = admitted(fabric::right_read);
  const auto of_first = data_path(first, false);
  const auto of_second = data_path(second, false);
  {
    const auto of_third = data_path(third, false);
    EXPECT_EQ(refusal(refused), ErrorCode::busy);
    third.send(MessageType::none, wire::DoneT());
    EXPECT_TRUE(third.ended());
  }
  EXPECT_TRUE(comes_true([&] { return !refusal(refused); }));
}

TEST_F(SmallRemoteTest, data_paths_by_libfabric_are_bounded) {
  RawClient client = admitted(fabric::right_read);
  auto asked = ticket(client, false);
  const auto plain = asked;
  asked.push_back(fabric::by_libfabric);
  RawClient refused = stranger();
  EXPECT_EQ(RawClient::failure(refused.call(MessageType::data_hello, data_hello(asked))), ErrorCode::busy);
  // The ticket is not used up: TCP is still there.
  RawClient by_tcp = stranger();
  EXPECT_EQ(by_tcp.call(MessageType::data_hello, data_hello(plain)).type, MessageType::done);
}

/// A server that waits for nobody.
class HastyRemoteTest : public RemoteTest {
 protected:
  void SetUp() override {
    options_.remote_limits.greeting_ms = greeting_ms;
    options_.remote_limits.ticket_ms = 0;
    RemoteTest::SetUp();
  }

  static constexpr std::int64_t greeting_ms = 2000;
};

TEST_F(HastyRemoteTest, whoever_does_not_prove_who_it_is_in_time_is_sent_away) {
  const Hello hello{token(fabric::right_read)};
  RawClient silent = stranger();
  RawClient challenged = stranger();
  EXPECT_EQ(challenged.call(MessageType::remote_hello, hello.message()).type, MessageType::remote_challenge);
  RawClient proved = admitted(hello.token);
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(challenged.ended());
  // The time of the one that was in time has passed as well: it came before the others had ended.
  RawClient later = stranger();
  EXPECT_TRUE(later.ended());
  EXPECT_EQ(proved.call(MessageType::heartbeat, wire::HeartbeatT()).type, MessageType::done);
}

TEST_F(HastyRemoteTest, a_ticket_ends_when_its_time_is_over) {
  RawClient client = admitted(fabric::right_read);
  const auto drawn = ticket(client, false);
  RawClient late = stranger();
  EXPECT_EQ(RawClient::failure(late.call(MessageType::data_hello, data_hello(drawn))), ErrorCode::permission_denied);
}

}  // namespace
}  // namespace forebay::testing
