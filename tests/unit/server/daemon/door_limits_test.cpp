// SPDX-License-Identifier: Apache-2.0
// What clients of the server's own node may take of it, and what they can make it keep.
#include <fcntl.h>
#include <sys/socket.h>

#include <chrono>
#include <fstream>
#include <utility>
#include <vector>

#include <forebay/reader.h>
#include <forebay/unix_socket.h>

#include "protocol/message.h"
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::MessageType;

/// The beginning of a message whose body is so long.
std::vector<std::byte> header_of(MessageType type, std::uint32_t body_bytes) {
  protocol::Header header;
  header.type = static_cast<std::uint16_t>(type);
  header.body_bytes = body_bytes;
  header.request = 1;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return {bytes.begin(), bytes.end()};
}

/// All of a long message, before anything is waited for.
template <class Object>
void send_whole(RawClient& client, MessageType type, const Object& object) {
  const auto body = protocol::pack(object);
  client.send_bytes(header_of(type, static_cast<std::uint32_t>(body.size())));
  client.send_bytes(std::as_bytes(std::span(body.data(), body.size())));
}

class DoorLimitsTest : public ServerTest {
 protected:
  DoorLimitsTest() {
    options_.door_limits.strangers = 4;
    options_.door_limits.unread_bytes = 8 * mib;
  }
};

TEST_F(DoorLimitsTest, before_the_hello_a_client_may_send_a_few_kilobytes) {
  RawClient client = connect(false);
  client.send_bytes(header_of(MessageType::hello, 8192));
  EXPECT_TRUE(client.ended());
  expect_alive();
}

TEST_F(DoorLimitsTest, after_the_hello_a_message_has_a_longest_length_too) {
  RawClient client = connect();
  client.send_bytes(header_of(MessageType::server_query, 4 * mib + 1));
  EXPECT_TRUE(client.ended());
  RawClient other = connect();
  wire::ReservationDestroyT asked;
  asked.name.assign(20'000, 'x');
  EXPECT_EQ(RawClient::failure(other.call(MessageType::reservation_destroy, asked)), ErrorCode::protocol);
  expect_alive();
}

TEST_F(DoorLimitsTest, who_says_no_hello_makes_place_for_who_does) {
  std::vector<RawClient> silent;
  for (int count = 0; count < 5; ++count) silent.push_back(connect(false));
  EXPECT_TRUE(silent.front().ended());
  expect_alive();
}

TEST_F(DoorLimitsTest, unfinished_messages_are_bounded_in_all) {
  std::vector<RawClient> clients;
  const std::vector<std::byte> bytes(2 * mib);
  for (int count = 0; count < 4; ++count) {
    clients.push_back(connect());
    clients.back().send_bytes(header_of(MessageType::server_query, 4 * mib));
    if (count < 2) clients.back().send_bytes(bytes);
  }
  // As much is to stay free for others as its user has.
  clients[2].send_bytes(bytes);
  EXPECT_TRUE(clients[2].ended());
  clients.erase(clients.begin() + 2);
  clients.erase(clients.begin());
  expect_alive();
}

TEST_F(DoorLimitsTest, requests_under_way_are_bounded) {
  RawClient client = writer();
  write_step(client, 0);
  RawClient behind = reader(reader_open());
  write_step(client, 1);
  wire::StepBeginT begin;
  begin.step = 2;
  begin.lag_limit = 1;
  begin.timeout_ms = 3'600'000;
  constexpr int requests_max = 256;
  for (int i = 0; i < requests_max; ++i) client.send(MessageType::step_begin, begin);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::step_begin, begin)), ErrorCode::busy);
  EXPECT_TRUE(client.ended());
  expect_alive();
}

TEST_F(DoorLimitsTest, what_an_open_keeps_while_it_waits_is_bounded_in_all) {
  // A reader that came back before its stream did: its list of pins is a mebibyte.
  wire::ReaderOpenT asked = reader_open({}, "later");
  asked.resume = true;
  asked.open_timeout_ms = -1;
  asked.pins.assign(65536, wire::StepKey(0, 1, 0));
  std::vector<RawClient> readers;
  for (int count = 0; count < 5; ++count) {
    readers.push_back(connect());
    send_whole(readers.back(), MessageType::reader_open, asked);
  }
  EXPECT_TRUE(readers.back().ended());
  readers.clear();
  // A rank whose group never is whole.
  wire::WriterOpenT opens = writer_open(0, 2);
  opens.retention.assign(3 * mib, 'x');
  RawClient rank = connect();
  send_whole(rank, MessageType::writer_open, opens);
  opens.stream = "other";
  RawClient another = connect();
  send_whole(another, MessageType::writer_open, opens);
  EXPECT_TRUE(another.ended());
  expect_alive();
}

TEST_F(DoorLimitsTest, requests_that_the_manager_does_not_take_count_for_their_user) {
  const std::string path = directory_.path("manager");
  const Descriptor manager(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind_unix(manager.get(), path), 0);
  ASSERT_EQ(::listen(manager.get(), 8), 0);
  std::ofstream(options_.root + "/manager-endpoint") << path << '\n';
  wire::ManagerCallT call;
  call.method = "POST";
  call.target = "/reservations";
  call.body.assign(1200 << 10, 'x');
  std::vector<RawClient> clients;
  for (int count = 0; count < 4; ++count) {
    clients.push_back(connect());
    send_whole(clients.back(), MessageType::manager_call, call);
  }
  EXPECT_EQ(RawClient::failure(clients.back().answer(1)), ErrorCode::busy);
  clients.clear();
  expect_alive();
}

TEST_F(DoorLimitsTest, texts_of_an_open_are_short) {
  wire::ReaderOpenT asked = reader_open();
  asked.ranks_source.assign(1025, 'x');
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::reader_open, asked)), ErrorCode::invalid_argument);
  asked = reader_open();
  asked.group.assign(4097, 'x');
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::reader_open, asked)), ErrorCode::invalid_argument);
  wire::WriterOpenT opens = writer_open();
  opens.ranks_source.assign(1025, 'x');
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::writer_open, opens)), ErrorCode::protocol);
}

TEST_F(DoorLimitsTest, groups_that_claim_to_have_a_million_ranks_are_told_at_once) {
  std::vector<RawClient> ranks;
  for (int count = 0; count < 300; ++count) {
    ranks.push_back(connect());
    ranks.back().send(MessageType::writer_open, writer_open(0, 1U << 20, "s" + std::to_string(count)));
  }
  // All have been dealt with once they are answered again.
  for (RawClient& rank : ranks)
    EXPECT_EQ(rank.call(MessageType::ranks_missing, wire::RanksMissingT()).type, MessageType::failure);
  const auto began = std::chrono::steady_clock::now();
  wire::StreamsQueryT query;
  query.reservation = "res";
  const auto answer = RawClient::unpack<wire::StreamsAnswer>(connect().call(MessageType::streams_query, query));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
  ASSERT_EQ(answer->streams.size(), 300U);
  EXPECT_EQ(
      answer->streams.front()->waits.front()->waits_for,
      "rank 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 1048559 more of 1048576 to open the stream");
}

TEST_F(DoorLimitsTest, a_list_of_steps_to_drop_that_repeats_one_is_dealt_with_once) {
  RawClient client = writer();
  write_step(client, 0);
  RawClient holder = reader(reader_open());
  ASSERT_TRUE(wait_step(holder)->step->pinned);
  for (int number = 0; number < 500; ++number) {
    wire::ReaderOpenT asked = reader_open("c" + std::to_string(number));
    asked.start_kind = static_cast<std::uint8_t>(Start::Kind::next);
    ASSERT_EQ(RawClient::failure(connect().call(MessageType::reader_open, asked)), std::nullopt);
  }
  write_step(client, 1);
  wire::StepsDropT drop;
  drop.reservation = "res";
  drop.stream = "flow";
  // The last one is held, so that all of it is looked at and nothing goes.
  drop.steps.assign(400'000, 1);
  drop.steps.push_back(0);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::steps_drop, drop)), ErrorCode::refused);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

/// One request is as much as is dealt with at once.
class ShortTurnsTest : public ServerTest {
 protected:
  ShortTurnsTest() { options_.door_limits.turn_ms = 0; }

  static constexpr int queries = 20;
  /// Asks for the streams so often. Returns the number of the last request.
  static std::uint32_t send_queries(RawClient& client) {
    wire::StreamsQueryT query;
    query.reservation = "res";
    std::uint32_t last = 0;
    for (int count = 0; count < queries; ++count) last = client.send(MessageType::streams_query, query);
    return last;
  }
};

TEST_F(ShortTurnsTest, a_packet_of_requests_is_dealt_with_bit_by_bit) {
  RawClient client = writer();
  write_step(client, 0);
  const wire::PartT part = part_of(client, 1);
  // Two connections of one user, with little enough to be received at once.
  RawClient first = connect();
  RawClient second = connect();
  std::uint32_t last_of_first = 0;
  std::uint32_t last_of_second = 0;
  hold_loop([&] {
    last_of_first = send_queries(first);
    last_of_second = send_queries(second);
    client.send(MessageType::part, part);
  });
  for (auto& [asker, last] : {std::pair(&first, last_of_first), std::pair(&second, last_of_second)}) {
    const auto answer = RawClient::unpack<wire::StreamsAnswer>(asker->answer(last));
    // The step has been committed before: the writer did not wait for all of it.
    EXPECT_EQ(answer->streams.front()->steps, 2U);
  }
}

TEST_F(ShortTurnsTest, descriptors_are_no_messages_that_wait) {
  RawClient client = connect();
  wire::StreamsQueryT query;
  query.reservation = "res";
  const auto packed = protocol::pack(query);
  std::uint32_t last = 0;
  hold_loop([&] {
    last = send_queries(client);
    std::vector<Descriptor> descriptors;
    descriptors.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    client.send_body(MessageType::streams_query, {packed.data(), packed.size()}, std::move(descriptors));
  });
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(client.answer(last).type, MessageType::none) << "its descriptor was open until its turns were over";
  expect_alive();
}

TEST_F(ShortTurnsTest, what_a_writer_said_before_it_left_counts_for_who_follows_it) {
  RawClient left = writer();
  write_step(left, 0);
  RawClient next = connect();
  std::uint32_t opened = 0;
  hold_loop([&] {
    wire::SegmentsGetT segments;
    segments.segments = {0};
    for (int count = 0; count < queries; ++count) left.send(MessageType::segments_get, segments);
    left.send(MessageType::writer_close, wire::WriterCloseT());
    ASSERT_EQ(::shutdown(left.socket().descriptor(), SHUT_WR), 0);
    opened = next.send(MessageType::writer_open, writer_open());
  });
  const protocol::Message answer = next.answer(opened);
  ASSERT_EQ(answer.type, MessageType::writer_opened) << protocol::failure_of(answer).message();
  EXPECT_EQ(RawClient::unpack<wire::WriterOpened>(answer)->interruption, "");
}

TEST_F(DoorLimitsTest, consumers_of_a_stream_are_bounded_for_each_user_who_may_only_read_and_in_all) {
  RawClient client = writer();
  write_step(client, 0);
  const auto open_as = [&](const std::string& consumer) {
    RawClient follower = connect();
    return RawClient::failure(follower.call(MessageType::reader_open, reader_open(consumer)));
  };
  for (int number = 0; number < 64; ++number) ASSERT_EQ(open_as("u1001.c" + std::to_string(number)), std::nullopt);
  EXPECT_EQ(open_as("u1001.more"), ErrorCode::no_space);
  EXPECT_EQ(open_as("u1001.c7"), std::nullopt);
  for (const char* user : {"u1002.c", "u1003.c", "u1004.c"}) {
    for (int number = 0; number < 64; ++number) ASSERT_EQ(open_as(user + std::to_string(number)), std::nullopt);
  }
  EXPECT_EQ(open_as("u1005.one"), ErrorCode::no_space);
  for (int number = 0; number < 1024 - 256; ++number) ASSERT_EQ(open_as("c" + std::to_string(number)), std::nullopt);
  EXPECT_EQ(open_as("more"), ErrorCode::no_space);
  // One that goes makes room.
  wire::ConsumerRemoveT remove;
  remove.reservation = "res";
  remove.stream = "flow";
  remove.consumer = "c5";
  EXPECT_EQ(connect().call(MessageType::consumer_remove, remove).type, MessageType::done);
  EXPECT_EQ(open_as("more"), std::nullopt);
  write_step(client, 1);
}

TEST_F(DoorLimitsTest, a_list_of_streams_with_many_consumers_is_told_in_pages) {
  std::vector<RawClient> writers;
  for (const char* stream : {"a", "b", "c", "d", "e"}) {
    writers.push_back(connect());
    ASSERT_EQ(writers.back().call(MessageType::writer_open, writer_open(0, 1, stream)).type,
              MessageType::writer_opened);
    for (int number = 0; number < 1024; ++number) {
      RawClient follower = connect();
      const auto opened = follower.call(MessageType::reader_open, reader_open("c" + std::to_string(number), stream));
      ASSERT_EQ(opened.type, MessageType::reader_opened);
    }
  }
  wire::StreamsQueryT query;
  query.reservation = "res";
  const auto page = RawClient::unpack<wire::StreamsAnswer>(connect().call(MessageType::streams_query, query));
  ASSERT_EQ(page->streams.size(), 4U);
  EXPECT_TRUE(page->more);
  query.after = page->streams.back()->name;
  const auto rest = RawClient::unpack<wire::StreamsAnswer>(connect().call(MessageType::streams_query, query));
  ASSERT_EQ(rest->streams.size(), 1U);
  EXPECT_EQ(rest->streams.front()->name, "e");
  EXPECT_FALSE(rest->more);
}

TEST_F(DoorLimitsTest, the_place_of_a_receipt_is_short) {
  RawClient client = writer();
  write_step(client, 0);
  wire::StagedMarkT mark;
  mark.reservation = "res";
  mark.stream = "flow";
  mark.epoch = 1;
  mark.steps = {0};
  mark.receipt.assign(4097, 'x');
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::staged_mark, mark)), ErrorCode::invalid_argument);
  mark.receipt.resize(4096);
  EXPECT_EQ(connect().call(MessageType::staged_mark, mark).type, MessageType::done);
}

TEST_F(DoorLimitsTest, an_audit_names_a_few_of_many_damaged_steps_and_counts_the_rest) {
  RawClient client = writer();
  for (std::uint64_t step = 0; step < 20; ++step) write_step(client, step);  // what it says of their metadata is wrong
  wire::AuditQueryT asked;
  asked.read_data = true;
  const auto answer = RawClient::unpack<wire::AuditAnswer>(connect().call(MessageType::audit_query, asked));
  ASSERT_EQ(answer->findings.size(), 17U);
  EXPECT_EQ(answer->findings.back()->what, "4 more findings like these");
}

class HastyDoorTest : public ServerTest {
 protected:
  HastyDoorTest() { options_.door_limits.hello_ms = 500; }
};

TEST_F(HastyDoorTest, who_says_no_hello_in_time_is_sent_away) {
  RawClient greeted = connect();
  RawClient silent = connect(false);
  EXPECT_TRUE(silent.ended());
  EXPECT_EQ(greeted.call(MessageType::server_query, wire::ServerQueryT()).type, MessageType::server_answer);
}

}  // namespace
}  // namespace forebay::testing
