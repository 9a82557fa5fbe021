// SPDX-License-Identifier: Apache-2.0
// What no client of ours sends: the connection that it comes from may end, the server and everybody else go on.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/support/message_types.h"
#include "tests/support/randomness.h"
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::Header;
using protocol::MessageType;

std::vector<std::byte> framed(const Header& header, std::span<const std::uint8_t> body = {}) {
  std::vector<std::byte> bytes(sizeof header + body.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
  return bytes;
}

class MalformedTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    bystander_ = std::make_unique<RawClient>(writer("bystander"));
  }
  /// Everybody else is served as before, and nothing has leaked.
  void expect_unharmed() {
    write_step(*bystander_, step_++);
    EXPECT_TRUE(problems().empty());
  }
  /// One valid message of every kind that a client sends, with bodies.
  static std::vector<std::pair<MessageType, std::vector<std::uint8_t>>> valid_messages() {
    std::vector<std::pair<MessageType, std::vector<std::uint8_t>>> messages;
    const auto add = [&](MessageType type, const auto& object) {
      const auto packed = protocol::pack(object);
      messages.emplace_back(type, std::vector<std::uint8_t>(packed.data(), packed.data() + packed.size()));
    };
    wire::HelloT hello;
    hello.version = protocol::protocol_version;
    hello.program = "a test";
    // Of nobody's else: damaged, too, they do not meet the bystander.
    wire::ReservationCreateT create;
    create.name = "other";
    create.capacity_bytes = 8 * mib;
    create.lifetime = 1;
    wire::ReservationDestroyT destroy;
    destroy.name = "other";
    destroy.force = true;
    wire::StreamRemoveT remove;
    remove.reservation = "res";
    remove.stream = "flow";
    remove.force = true;
    wire::ConsumerRemoveT consumer;
    consumer.reservation = "res";
    consumer.stream = "flow";
    consumer.consumer = "render";
    wire::ReservationsQueryT reservations;
    reservations.name = "res";
    wire::StreamsQueryT streams;
    streams.reservation = "res";
    wire::StepsQueryT steps;
    steps.reservation = "res";
    steps.stream = "flow";
    steps.steps_max = 10;
    wire::RetentionSetT retention;
    retention.reservation = "res";
    retention.stream = "flow";
    retention.retention = "last:3";
    wire::StagedMarkT staged;
    staged.reservation = "res";
    staged.stream = "flow";
    staged.epoch = 1;
    staged.steps = {0, 1};
    wire::PreciousSetT precious;
    precious.reservation = "res";
    precious.stream = "flow";
    precious.steps = {0};
    wire::StepsDropT drop;
    drop.reservation = "res";
    drop.stream = "flow";
    drop.steps = {0};
    wire::SpaceRequestT space;
    space.bytes = 8192;
    wire::PartT part;
    part.extents.emplace_back(0, 0, 0, 0, 4096);
    part.metadata.emplace_back(0, 0, 0, 0, 64);
    part.metadata_bytes = 64;
    wire::WriterRejoinT rejoin;
    rejoin.reservation = "res";
    rejoin.stream = "flow";
    rejoin.epoch = 1;
    rejoin.incarnation = 1;
    rejoin.ranks = 1;
    rejoin.held.emplace_back(0, 0, 0, 0, 4096);
    wire::StepReleaseT release;
    release.steps.emplace_back(0, 1, 0);
    wire::CursorMoveT move;
    move.epoch = 1;
    wire::SegmentsGetT segments;
    segments.segments = {0, 1, 2};
    wire::StepCheckT check;
    check.key = std::make_unique<wire::StepKey>(0, 1, 0);
    wire::ReaderOpenT resume = reader_open("render");
    resume.resume = true;
    resume.session = 5;
    resume.pins.emplace_back(0, 1, 0);
    add(MessageType::hello, hello);
    add(MessageType::server_query, wire::ServerQueryT());
    add(MessageType::reservation_create, create);
    add(MessageType::reservation_destroy, destroy);
    add(MessageType::reservations_query, reservations);
    add(MessageType::streams_query, streams);
    add(MessageType::steps_query, steps);
    add(MessageType::stream_remove, remove);
    add(MessageType::consumer_remove, consumer);
    add(MessageType::retention_set, retention);
    add(MessageType::staged_mark, staged);
    add(MessageType::precious_set, precious);
    add(MessageType::steps_drop, drop);
    add(MessageType::audit_query, wire::AuditQueryT());
    wire::TokenCreateT token;
    token.reservation = "res";
    token.rights = 1;
    token.lifetime_s = 60;
    add(MessageType::token_create, token);
    wire::TokenRevokeT revoked;
    revoked.token = "forebay-token-1.AAAA";
    add(MessageType::token_revoke, revoked);
    wire::HomeQueryT home;
    home.reservation = "res";
    add(MessageType::home_query, home);
    wire::PoolDirectoryT directory;
    directory.manager = "node1:7460";
    directory.homes.push_back(std::make_unique<wire::HomeEntryT>());
    directory.homes.back()->name = "far";
    directory.homes.back()->id = "01234567-89ab-cdef-0123-456789abcdef";
    directory.homes.back()->server = "node2:7460";
    add(MessageType::pool_directory, directory);
    wire::ManagerCallT call;
    call.method = "GET";
    call.target = "/health";
    add(MessageType::manager_call, call);
    wire::MemberQueryT member;
    member.member = 1;
    add(MessageType::member_query, member);
    wire::MemberOpenT shown;
    shown.permit.assign(160, 7);
    add(MessageType::member_open, shown);
    wire::MemberLookT look;
    look.reservations.push_back("01234567-89ab-cdef-0123-456789abcdef");
    look.syncs.push_back(3);
    add(MessageType::member_look, look);
    wire::MemberSyncT sync;
    sync.reservation = "01234567-89ab-cdef-0123-456789abcdef";
    sync.segments.push_back(3);
    add(MessageType::member_sync, sync);
    wire::MemberFenceT fence;
    fence.reservation = "01234567-89ab-cdef-0123-456789abcdef";
    add(MessageType::member_fence, fence);
    wire::MemberProbeT probe;
    probe.reservation = "01234567-89ab-cdef-0123-456789abcdef";
    probe.segments.push_back(3);
    add(MessageType::member_probe, probe);
    wire::MemberChecksumT checksum;
    checksum.reservation = "01234567-89ab-cdef-0123-456789abcdef";
    checksum.extents.emplace_back(3, 1, 0, 4096, 4096);
    add(MessageType::member_checksum, checksum);
    wire::ReservationShareT share;
    share.name = "res";
    share.share = std::make_unique<wire::ShareT>();
    share.share->kind = 1;
    share.share->id = 12345;
    share.share->rights = 2;
    add(MessageType::reservation_share, share);
    wire::ReservationChangeT change;
    change.name = "res";
    change.lifetime = 2;
    change.files_bytes = 1 << 20;
    add(MessageType::reservation_change, change);
    wire::FilesAdoptT adoption;
    adoption.name = "res";
    adoption.path = "results";
    add(MessageType::files_adopt, adoption);
    add(MessageType::writer_open, writer_open());
    add(MessageType::writer_rejoin, rejoin);
    add(MessageType::step_begin, wire::StepBeginT());
    add(MessageType::space_request, space);
    add(MessageType::part, part);
    add(MessageType::step_abort, wire::StepAbortT());
    add(MessageType::writer_close, wire::WriterCloseT());
    wire::WriterLeaveT leave;
    leave.reason = wire::LeaveReason::failed;
    leave.step = 3;
    leave.text = "ValueError: no";
    add(MessageType::writer_leave, leave);
    wire::WriterRefusedT refused;
    refused.reservation = "res";
    refused.stream = "flow";
    refused.text = "a parameter that nobody knows";
    add(MessageType::writer_refused, refused);
    add(MessageType::reader_open, reader_open());
    add(MessageType::reader_open, resume);
    add(MessageType::step_wait, wire::StepWaitT());
    add(MessageType::step_poll, wire::StepPollT());
    add(MessageType::step_get, wire::StepGetT());
    add(MessageType::step_release, release);
    add(MessageType::cursor_move, move);
    add(MessageType::segments_get, segments);
    add(MessageType::step_check, check);
    add(MessageType::reader_leave, wire::ReaderLeaveT());
    return messages;
  }

  std::unique_ptr<RawClient> bystander_;
  std::uint64_t step_ = 0;
};

TEST_F(MalformedTest, there_is_a_valid_message_of_each_type_that_clients_send) {
  const auto messages = valid_messages();
  const auto missing = missing_request([&](MessageType type) {
    return std::ranges::any_of(messages, [type](const auto& message) { return message.first == type; });
  });
  EXPECT_EQ(missing, MessageType::none) << wire::EnumNameMessageType(missing);
}

TEST_F(MalformedTest, another_language_ends_the_connection) {
  const std::string http = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  RawClient client = connect(false);
  client.send_bytes(std::as_bytes(std::span(http)));
  EXPECT_TRUE(client.ended());
  expect_unharmed();
}

TEST_F(MalformedTest, nothing_is_served_before_hello) {
  RawClient client = connect(false);
  (void)client.send(MessageType::server_query, wire::ServerQueryT());
  EXPECT_TRUE(client.ended());
  RawClient other = connect(false);
  wire::HelloT hello;
  hello.version = 999;
  EXPECT_EQ(RawClient::failure(other.call(MessageType::hello, hello)), ErrorCode::unsupported);
  EXPECT_TRUE(other.ended());
  expect_unharmed();
}

TEST_F(MalformedTest, lengths_beyond_the_limit_end_the_connection) {
  Header large;
  large.type = static_cast<std::uint16_t>(MessageType::server_query);
  large.body_bytes = protocol::body_bytes_max + 1;
  Header many;
  many.type = static_cast<std::uint16_t>(MessageType::server_query);
  many.descriptors = protocol::descriptors_max + 1;
  for (const Header& header : {large, many}) {
    RawClient client = connect();
    client.send_bytes(framed(header));
    EXPECT_TRUE(client.ended());
  }
  expect_unharmed();
}

TEST_F(MalformedTest, descriptors_that_do_not_come_are_not_waited_for) {
  // Else whatever follows is kept in memory for ever.
  Header header;
  header.type = static_cast<std::uint16_t>(MessageType::server_query);
  header.descriptors = 1;
  RawClient client = connect();
  client.send_bytes(framed(header));
  EXPECT_TRUE(client.ended());
  expect_unharmed();
}

TEST_F(MalformedTest, a_message_that_never_becomes_whole_holds_nobody_up) {
  Header header;
  header.type = static_cast<std::uint16_t>(MessageType::server_query);
  header.body_bytes = std::uint32_t{4} << 20;
  RawClient client = connect();
  client.send_bytes(framed(header));
  expect_unharmed();
}

TEST_F(MalformedTest, descriptors_that_nobody_asked_for_end_the_connection_and_are_closed) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reading(ends[0]);
  {
    RawClient client = connect();
    std::vector<Descriptor> sent;
    for (std::size_t i = 0; i < protocol::descriptors_max; ++i) sent.emplace_back(::fcntl(ends[1], F_DUPFD_CLOEXEC, 0));
    ::close(ends[1]);
    (void)client.send_body(MessageType::server_query, {}, std::move(sent));
    EXPECT_TRUE(client.ended());
  }
  // The pipe's writing end is closed everywhere.
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 0);
  expect_unharmed();
}

TEST_F(MalformedTest, messages_in_the_wrong_state_are_answered_with_an_error_or_the_end) {
  using Types = std::set<MessageType>;
  const Types writers{MessageType::step_begin,  MessageType::space_request, MessageType::part,
                      MessageType::step_abort,  MessageType::writer_close,  MessageType::segments_get,
                      MessageType::writer_leave};
  const Types readers{MessageType::step_wait,   MessageType::step_poll,    MessageType::step_get,
                      MessageType::cursor_move, MessageType::segments_get, MessageType::step_check,
                      MessageType::reader_leave};
  for (const MessageType opening : {MessageType::writer_open, MessageType::reader_open, MessageType::none}) {
    for (const auto& [type, body] : valid_messages()) {
      if (type == MessageType::step_release) continue;  // it has no answer
      // A reader lists the steps that it may take, and anybody may ask for all.
      if (type == MessageType::steps_query && opening == MessageType::reader_open) continue;
      const bool fits = opening == MessageType::writer_open   ? writers.contains(type)
                        : opening == MessageType::reader_open ? readers.contains(type)
                                                              : !writers.contains(type) && !readers.contains(type);
      if (fits) continue;
      RawClient client = connect();
      if (opening == MessageType::writer_open) {
        ASSERT_EQ(client.call(opening, writer_open()).type, MessageType::writer_opened);
      } else if (opening == MessageType::reader_open) {
        ASSERT_EQ(client.call(opening, reader_open({}, "bystander")).type, MessageType::reader_opened);
      }
      const auto answer = client.answer(client.send_body(type, body));
      const bool ended = answer.type == MessageType::none && client.ended();
      EXPECT_TRUE(ended || RawClient::failure(answer) == ErrorCode::protocol)
          << wire::EnumNameMessageType(type) << " after " << wire::EnumNameMessageType(opening);
    }
  }
  expect_unharmed();
}

TEST_F(MalformedTest, types_that_do_not_exist_are_refused) {
  for (const std::uint16_t type : {std::uint16_t{0}, std::uint16_t{9}, std::uint16_t{1000}, std::uint16_t{65535}}) {
    for (const bool opened : {false, true}) {
      RawClient client = opened ? writer("probe") : connect();
      const auto answer = client.answer(client.send_body(static_cast<MessageType>(type), {}));
      EXPECT_TRUE(answer.type == MessageType::failure || client.ended()) << type;
    }
  }
  expect_unharmed();
}

/// Bits are flipped, bodies cut or stretched, bytes exchanged: seeds and counts as in randomness.h.
TEST_F(MalformedTest, damaged_messages_harm_nobody) {
  const auto messages = valid_messages();
  for (std::uint64_t round = 0; round < test_count(400); ++round) {
    const std::uint64_t seed = test_seed() + round;
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    RawClient client = connect();
    for (int i = 0; i < 6 && !HasFatalFailure(); ++i) {
      const auto& [type, body] = messages[below(random, messages.size())];
      Header header;
      header.type = static_cast<std::uint16_t>(type);
      header.request = 1 + static_cast<std::uint32_t>(below(random, 100));
      std::vector<std::uint8_t> damaged = body;
      switch (below(random, 5)) {
        case 0:  // as it is: the state is random enough
          break;
        case 1:
          for (std::uint64_t flips = 1 + below(random, 8); flips > 0 && !damaged.empty(); --flips)
            damaged[below(random, damaged.size())] ^= static_cast<std::uint8_t>(1U << below(random, 8));
          break;
        case 2:
          damaged.resize(below(random, damaged.size() + 1));
          break;
        case 3:
          damaged.resize(damaged.size() + below(random, 64), static_cast<std::uint8_t>(random()));
          break;
        default:
          if (damaged.size() >= 4) {
            const auto value = static_cast<std::uint32_t>(random());
            std::memcpy(damaged.data() + below(random, damaged.size() - 3), &value, sizeof value);
          }
      }
      header.body_bytes = static_cast<std::uint32_t>(damaged.size());
      std::vector<std::byte> bytes = framed(header, damaged);
      if (chance(random, 10)) bytes[below(random, sizeof header)] ^= static_cast<std::byte>(1U << below(random, 8));
      client.send_bytes(bytes);
    }
    if (round % 20 == 0) expect_alive();
  }
  expect_unharmed();
}

TEST_F(MalformedTest, random_bytes_harm_nobody) {
  for (std::uint64_t round = 0; round < test_count(100); ++round) {
    Random random(test_seed() + round);
    RawClient client = connect(chance(random, 2));
    std::vector<std::byte> bytes(1 + below(random, 5000));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (chance(random, 2)) std::memcpy(bytes.data(), &protocol::magic, std::min(bytes.size(), sizeof protocol::magic));
    client.send_bytes(bytes);
  }
  expect_unharmed();
}

TEST_F(MalformedTest, a_client_that_does_not_read_its_answers_is_sent_away) {
  RawClient client = writer();
  part_of(client, 0, 32 * mib);
  // Each answer would carry descriptors: neither they nor memory may pile up.
  wire::SegmentsGetT segments;
  for (std::uint32_t i = 0; i < 64; ++i) segments.segments.push_back(i % 4);
  const auto body = protocol::pack(segments);
  protocol::Header header;
  header.type = static_cast<std::uint16_t>(MessageType::segments_get);
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.request = 100;
  std::vector<std::byte> requests;
  for (int i = 0; i < 1000; ++i) {
    std::ranges::copy(std::as_bytes(std::span(&header, 1)), std::back_inserter(requests));
    std::ranges::copy(std::as_bytes(std::span(body.data(), body.size())), std::back_inserter(requests));
  }
  const auto is_heard = [&] { return stream()->status == static_cast<std::uint8_t>(StreamStatus::live); };
  for (int i = 0; i < 1000 && is_heard(); ++i) client.send_bytes(requests);
  EXPECT_FALSE(is_heard());
  expect_unharmed();
}

}  // namespace
}  // namespace forebay::testing
