// SPDX-License-Identifier: Apache-2.0
// What a client that keeps to no rule can do to a fabric path: it loses its own, and nobody else's suffers.
#include <poll.h>

#include "fabric/fabric_address.h"
#include "fabric/fabric_greeting.h"
#include "tests/unit/fabric/path_fixture.h"

namespace forebay::testing {
namespace {

using fabric::FrameHeader;
using fabric::FrameKind;
using fabric::MemoryPlace;

class FabricPathTest : public PathTest {
 protected:
  /// A client's end by hand.
  struct Raw {
    std::unique_ptr<fabric::FrameSocket> frames;
    std::unique_ptr<fabric::RmaEndpoint> endpoint;
    fabric::FabricGreeting servers;
    std::shared_ptr<fabric::ServerPath> server;
    std::vector<std::byte> memory = std::vector<std::byte>(4 * mib);

    void tell(FrameKind kind, std::uint64_t ticket, std::uint64_t length, const MemoryPlace& place) {
      FrameHeader header;
      header.kind = kind;
      header.ticket = ticket;
      header.length = length;
      header.segment = 3;
      EXPECT_TRUE(frames->send(header, std::as_bytes(std::span(&place, 1)), wait_on));
    }
    void hello(std::span<const std::byte> bytes) {
      const Deadline deadline = Deadline::after_ms(30'000);
      while (!deadline.passed()) {
        const auto sent = endpoint->send(bytes);
        ASSERT_TRUE(sent) << sent.error().message();
        if (*sent) return;
        move_on();
      }
      ADD_FAILURE() << "the fabric takes nothing";
    }
    /// Moves the fabric on; false once it says that it is lost.
    bool move_on() {
      const auto ended = endpoint->next();
      pollfd ready{endpoint->descriptor(), POLLIN, 0};
      (void)::poll(&ready, 1, 1);
      return ended && !(*ended && (*ended)->error);
    }
    /// Until the server says something or goes.
    std::optional<FrameHeader> answer() {
      const Deadline deadline = Deadline::after_ms(60'000);
      while (!deadline.passed()) {
        pollfd ready{frames->descriptor(), POLLIN, 0};
        if (::poll(&ready, 1, 0) > 0) {
          const auto header = frames->receive_header(wait_on);
          return header ? std::optional(*header) : std::nullopt;
        }
        (void)move_on();
      }
      return std::nullopt;
    }
  };

  /// Greets, with an address that `change` has changed, and says no hello yet.
  Raw greet(std::shared_ptr<fabric::WriteWindow> window,
            const std::function<void(std::vector<std::byte>&)>& change = {}) {
    auto sockets = SocketPair::make();
    auto server = data_.serve(std::move(sockets.server), std::move(window), fabric::FabricChoice{"tcp", endpoints()},
                              ends_.hook());
    EXPECT_TRUE(server);
    Raw raw;
    raw.server = std::move(*server);
    raw.frames = std::make_unique<fabric::FrameSocket>(std::move(sockets.client), fabric::path_silence_ms_max);
    FrameHeader reads;
    reads.kind = FrameKind::ready;
    EXPECT_TRUE(raw.frames->send(reads, {}, wait_on));
    EXPECT_TRUE(raw.frames->receive_header(wait_on));
    std::vector<std::byte> bytes(fabric::fabric_greeting_bytes);
    EXPECT_TRUE(raw.frames->receive(bytes, wait_on));
    raw.servers = *fabric::decode_greeting(bytes);
    auto opened = endpoints()("tcp", "127.0.0.1");
    EXPECT_TRUE(opened);
    raw.endpoint = std::move(opened->endpoint);
    EXPECT_TRUE(raw.endpoint->set_peer(raw.servers.address, "127.0.0.1"));
    fabric::FabricGreeting own;
    own.identity = opened->identity;
    own.address.assign(raw.endpoint->address().begin(), raw.endpoint->address().end());
    if (change) change(own.address);
    FrameHeader header;
    header.kind = FrameKind::greeting;
    header.length = fabric::fabric_greeting_bytes;
    EXPECT_TRUE(raw.frames->send(header, fabric::encode(own), wait_on));
    return raw;
  }

  Raw greeted(std::shared_ptr<fabric::WriteWindow> window) {
    Raw raw = greet(std::move(window));
    raw.hello(std::as_bytes(std::span(raw.servers.password)));
    const auto ready = raw.answer();
    EXPECT_TRUE(ready && ready->kind == FrameKind::ready);
    return raw;
  }

  void expect_others_go_on(Path& other) {
    std::vector<std::byte> out(4 * mib);
    ASSERT_TRUE(other.server->send(transfer(1, {{0, out.size()}})));
    ASSERT_TRUE(other.client->receive(1, fabric::Incoming(out), wait_on));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), content_.begin()));
  }
};

TEST_P(FabricPathTest, a_wrong_key_for_reading_ends_this_path_alone) {
  Path other = connect();
  Raw raw = greeted(open_window());
  auto exposed = raw.endpoint->expose(std::span(raw.memory).first(mib), fabric::PeerMay::read);
  ASSERT_TRUE(exposed);
  MemoryPlace place = (*exposed)->place();
  place.key ^= 1;
  raw.tell(FrameKind::take, 0, mib, place);
  EXPECT_FALSE(raw.answer());
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
  expect_others_go_on(other);
}

TEST_P(FabricPathTest, a_wrong_key_for_writing_ends_this_path_alone) {
  Path other = connect();
  Raw raw = greeted(nullptr);
  auto exposed = raw.endpoint->expose(std::span(raw.memory).first(mib), fabric::PeerMay::write);
  ASSERT_TRUE(exposed);
  MemoryPlace place = (*exposed)->place();
  place.key ^= 1;
  ASSERT_TRUE(raw.server->send(transfer(1, {{0, mib}})));
  raw.tell(FrameKind::memory, 1, mib, place);
  EXPECT_FALSE(raw.answer());
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
  EXPECT_TRUE(std::ranges::all_of(raw.memory, [](std::byte one) { return one == std::byte{}; }));
  expect_others_go_on(other);
}

TEST_P(FabricPathTest, memory_that_may_only_be_read_is_not_written) {
  Raw raw = greeted(nullptr);
  auto exposed = raw.endpoint->expose(std::span(raw.memory).first(mib), fabric::PeerMay::read);
  ASSERT_TRUE(exposed);
  ASSERT_TRUE(raw.server->send(transfer(1, {{0, mib}})));
  raw.tell(FrameKind::memory, 1, mib, (*exposed)->place());
  EXPECT_FALSE(raw.answer());
  EXPECT_TRUE(std::ranges::all_of(raw.memory, [](std::byte one) { return one == std::byte{}; }));
}

TEST_P(FabricPathTest, a_client_that_dies_with_memory_exposed_ends_its_path_alone) {
  Path other = connect();
  {
    Raw raw = greeted(nullptr);
    std::vector<std::unique_ptr<fabric::ExposedMemory>> exposed;
    ASSERT_TRUE(raw.server->send(transfer(1, {{0, 4 * mib}})));
    for (std::size_t number = 0; number < 4; ++number) {
      auto one = raw.endpoint->expose(std::span(raw.memory).subspan(number * mib, mib), fabric::PeerMay::write);
      ASSERT_TRUE(one);
      raw.tell(FrameKind::memory, 1, mib, (*one)->place());
      exposed.push_back(std::move(*one));
    }
    exposed.clear();
  }
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::disconnected);
  expect_others_go_on(other);
}

TEST_P(FabricPathTest, memory_for_something_else_ends_the_path) {
  for (const auto& [ticket, length] : {std::pair<std::uint64_t, std::uint64_t>(1, 4096), {2, mib}}) {
    Raw raw = greeted(nullptr);
    auto exposed = raw.endpoint->expose(std::span(raw.memory).first(mib), fabric::PeerMay::write);
    ASSERT_TRUE(exposed);
    ASSERT_TRUE(raw.server->send(transfer(1, {{0, mib}})));
    raw.tell(FrameKind::memory, ticket, length, (*exposed)->place());
    EXPECT_FALSE(raw.answer());
  }
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::protocol);
  EXPECT_EQ(ends_.wait_for(2).code, ErrorCode::protocol);
}

TEST_P(FabricPathTest, frames_of_the_other_direction_end_the_path) {
  Raw reading = greeted(nullptr);
  reading.tell(FrameKind::take, 0, mib, {});
  EXPECT_FALSE(reading.answer());
  Raw writing = greeted(open_window());
  writing.tell(FrameKind::memory, 1, mib, {});
  EXPECT_FALSE(writing.answer());
  EXPECT_EQ(ends_.wait_for(2).code, ErrorCode::protocol);
}

TEST_P(FabricPathTest, an_address_of_another_node_is_refused) {
  Raw raw = greet(nullptr, [](std::vector<std::byte>& address) { address[7] ^= std::byte{1}; });  // of 127.0.0.1
  const auto answer = raw.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, FrameKind::failed);
  EXPECT_EQ(ends_.wait_for(1).code, ErrorCode::protocol);
}

TEST_P(FabricPathTest, a_hello_without_the_password_is_no_hello) {
  Raw raw = greet(nullptr);
  auto wrong = raw.servers.password;
  wrong[0] ^= 1;
  raw.hello(std::as_bytes(std::span(wrong)));
  raw.hello(std::as_bytes(std::span(wrong)));
  raw.hello(std::as_bytes(std::span(raw.servers.password)));
  const auto ready = raw.answer();
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->kind, FrameKind::ready);
}

INSTANTIATE_TEST_SUITE_P(networks, FabricPathTest, ::testing::Values("libfabric"),
                         [](const auto& network) { return network.param; });

TEST(FabricAddressTest, addresses_are_of_the_node_that_was_named) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(5000);
  own.sin_addr.s_addr = htonl(0x0A5D0101);
  const auto bytes = std::as_bytes(std::span(&own, 1));
  EXPECT_TRUE(fabric::is_plausible_address(bytes, bytes, "10.93.1.1"));
  EXPECT_FALSE(fabric::is_plausible_address(bytes, bytes, "10.93.1.2"));
  EXPECT_FALSE(fabric::is_plausible_address(bytes.first(8), bytes, "10.93.1.1"));
  sockaddr_in without_port = own;
  without_port.sin_port = 0;
  EXPECT_FALSE(fabric::is_plausible_address(std::as_bytes(std::span(&without_port, 1)), bytes, "10.93.1.1"));
}

TEST(FabricGreetingTest, what_is_no_greeting_is_refused) {
  fabric::FabricGreeting greeting;
  greeting.identity = {"tcp", 0x20005};
  greeting.address.assign(16, std::byte{7});
  const auto bytes = fabric::encode(greeting);
  const auto again = fabric::decode_greeting(bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->identity.provider, "tcp");
  EXPECT_EQ(again->address, greeting.address);
  EXPECT_FALSE(fabric::decode_greeting(std::span(bytes).first(bytes.size() - 1)));
  for (const std::size_t place : {std::size_t{0}, std::size_t{9}, std::size_t{16}}) {  // version, length, provider
    auto changed = bytes;
    changed[place] ^= std::byte{0x5A};
    EXPECT_FALSE(fabric::decode_greeting(changed)) << place;
  }
}

TEST(FabricProviderTest, shm_and_unknown_providers_are_refused) {
  for (const char* known : {"tcp", "verbs", "cxi", "efa"}) EXPECT_TRUE(fabric::check_provider(known));
  for (const char* unknown : {"shm", "", "tcp;ofi_rxm", "udp"}) EXPECT_FALSE(fabric::check_provider(unknown));
}

}  // namespace
}  // namespace forebay::testing
