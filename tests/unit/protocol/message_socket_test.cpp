// SPDX-License-Identifier: Apache-2.0
// Messages over a socket pair: bodies of every size, descriptors with their message, and what is no message.
#include "protocol/message_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace forebay::protocol {
namespace {

struct Pair {
  std::unique_ptr<MessageSocket> left;
  std::unique_ptr<MessageSocket> right;
};

Pair connected() {
  int sockets[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  return {std::make_unique<MessageSocket>(Descriptor(sockets[0])),
          std::make_unique<MessageSocket>(Descriptor(sockets[1]))};
}

std::vector<std::uint8_t> body_of_size(std::size_t size) {
  std::vector<std::uint8_t> body(size);
  for (std::size_t i = 0; i < size; ++i) body[i] = static_cast<std::uint8_t>(i * 7 + size);
  return body;
}

TEST(MessageSocket, bodies_of_every_size_arrive_in_order) {
  Pair pair = connected();
  const std::size_t sizes[] = {0, 1, 15, 16, 17, 4096, 65536, 100'000, 3'000'000};
  std::uint32_t request = 0;
  for (const std::size_t size : sizes) ASSERT_TRUE(pair.left->send(MessageType::part, ++request, body_of_size(size)));
  std::uint32_t received = 0;
  while (received < request) {
    ASSERT_TRUE(pair.left->flush());
    ASSERT_TRUE(pair.right->receive());
    while (auto message = pair.right->pop()) {
      ASSERT_EQ(message->request, ++received);
      EXPECT_EQ(message->type, MessageType::part);
      const auto expected = body_of_size(sizes[received - 1]);
      ASSERT_EQ(message->body.size(), expected.size());
      EXPECT_TRUE(
          std::equal(expected.begin(), expected.end(), reinterpret_cast<const std::uint8_t*>(message->body.data())));
    }
  }
  EXPECT_FALSE(pair.left->has_unsent());
  EXPECT_EQ(pair.left->unsent_bytes(), 0U);
}

// A socket without a connection fails with ENOTCONN, as a lost one may with ETIMEDOUT or EHOSTUNREACH.
TEST(MessageSocket, a_failing_connection_is_no_failing_disk) {
  MessageSocket alone(Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  const auto received = alone.receive();
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, ErrorCode::disconnected);
  EXPECT_NE(received.error().what.find("cannot receive from the peer"), std::string::npos);
}

TEST(MessageSocket, descriptors_come_with_their_message) {
  Pair pair = connected();
  for (std::uint32_t request = 1; request <= 3; ++request) {
    std::vector<Descriptor> descriptors;
    for (std::uint32_t i = 0; i < request; ++i) {
      int ends[2];
      ASSERT_EQ(::pipe(ends), 0);
      ASSERT_EQ(::write(ends[1], &request, sizeof request), static_cast<ssize_t>(sizeof request));
      ::close(ends[1]);
      descriptors.emplace_back(ends[0]);
    }
    ASSERT_TRUE(pair.left->send(MessageType::segments_answer, request, {}, std::move(descriptors)));
  }
  ASSERT_TRUE(pair.right->receive());
  // One receive does not read past a message with descriptors.
  for (std::uint32_t request = 1; request <= 3; ++request) {
    auto message = pair.right->pop();
    while (!message) {
      ASSERT_TRUE(pair.right->receive());
      message = pair.right->pop();
    }
    ASSERT_EQ(message->descriptors.size(), request);
    for (const Descriptor& descriptor : message->descriptors) {
      std::uint32_t number = 0;
      ASSERT_EQ(::read(descriptor.get(), &number, sizeof number), static_cast<ssize_t>(sizeof number));
      EXPECT_EQ(number, request);
      EXPECT_NE(::fcntl(descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
    }
  }
}

TEST(MessageSocket, end_of_the_peer_is_disconnected_after_what_it_sent) {
  Pair pair = connected();
  ASSERT_TRUE(pair.left->send(MessageType::done, 5, {}));
  pair.left.reset();
  const auto received = pair.right->receive();
  EXPECT_TRUE(pair.right->pop().has_value());
  if (received) {
    EXPECT_EQ(pair.right->receive().error().code, ErrorCode::disconnected);
  }
  EXPECT_FALSE(pair.right->send(MessageType::done, 6, {}).has_value());
}

TEST(MessageSocket, what_is_no_message_has_no_type) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const Descriptor stranger(sockets[0]);
  MessageSocket socket{Descriptor(sockets[1])};
  const char text[] = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_GT(::write(stranger.get(), text, sizeof text), 0);
  ASSERT_TRUE(socket.receive());
  auto message = socket.pop();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->type, MessageType::none);
}

TEST(MessageSocket, body_that_does_not_verify_is_a_protocol_error) {
  Message message;
  message.type = MessageType::welcome;
  EXPECT_EQ(body_of<wire::Welcome>(message).error().code, ErrorCode::protocol);
  message.body.assign(64, std::byte{0xAB});
  EXPECT_EQ(body_of<wire::Welcome>(message).error().code, ErrorCode::protocol);
  EXPECT_EQ(failure_of(message).code, ErrorCode::protocol);
}

}  // namespace
}  // namespace forebay::protocol
