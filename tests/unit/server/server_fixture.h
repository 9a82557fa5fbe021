// SPDX-License-Identifier: Apache-2.0
// A server inside the test's process, and clients that speak the raw protocol: what a well-behaved client library would
// never send can be sent here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/message_socket.h"
#include "staging-servers/daemon/server.h"
#include "tests/support/temporary_directory.h"

namespace forebay::testing {

/// One connection. Every wait has a deadline; what does not come fails the test.
class RawClient {
 public:
  explicit RawClient(const std::string& socket_path, bool greet = true);
  /// On a connection that somebody has made.
  RawClient(const std::string& socket_path, Descriptor socket);
  /// The same, and nothing is said on it yet.
  explicit RawClient(Descriptor socket) : socket_(std::move(socket)) {}
  protocol::MessageSocket& socket() noexcept { return socket_; }

  /// Sends a request and returns its number.
  template <class Object>
  std::uint32_t send(protocol::MessageType type, const Object& body) {
    const auto packed = protocol::pack(body);
    return send_body(type, {packed.data(), packed.size()});
  }
  std::uint32_t send_body(protocol::MessageType type, std::span<const std::uint8_t> body,
                          std::vector<Descriptor> descriptors = {});
  void send_bytes(std::span<const std::byte> bytes);

  /// The answer to that request. Type none if the server has ended the connection.
  protocol::Message answer(std::uint32_t request);
  template <class Object>
  protocol::Message call(protocol::MessageType type, const Object& body) {
    return answer(send(type, body));
  }
  /// The code of a Failure; nothing for another answer.
  static std::optional<ErrorCode> failure(const protocol::Message& message);
  /// Waits until the server has ended the connection.
  bool ended();
  /// True if that request has been answered by now: every request sent before the call has been dealt with.
  bool is_answered(std::uint32_t request);

  template <class Table>
  static std::unique_ptr<typename Table::NativeTableType> unpack(const protocol::Message& message) {
    auto body = protocol::body_of<Table>(message);
    EXPECT_TRUE(body) << wire::EnumNameMessageType(message.type);
    return body ? std::unique_ptr<typename Table::NativeTableType>((*body)->UnPack()) : nullptr;
  }

 private:
  bool receive();
  void greet();

  std::string socket_path_;
  protocol::MessageSocket socket_;
  std::uint32_t last_request_ = 0;
  std::vector<protocol::Message> received_;
  bool ended_ = false;
};

class ServerTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t mib = std::uint64_t{1} << 20;

  void SetUp() override;
  void TearDown() override;
  /// What the server sees of the disk.
  virtual Device& device() { return posix_device(); }

  RawClient connect(bool greet = true) { return RawClient(socket_path_, greet); }
  void create(const std::string& name, std::uint64_t capacity_bytes);
  /// Ends the server and starts it again, in the same boot. `meanwhile` is done in between.
  void restart(const std::function<void()>& meanwhile = [] {});
  /// The server's loop does nothing between begin and end of `meanwhile`.
  void hold_loop(const std::function<void()>& meanwhile);
  /// Does that in the loop's thread, and returns when it is done.
  void in_loop(const std::function<void(server::Server&)>& task);
  /// The file of a segment of res.
  std::string segment_path(std::uint32_t segment) const;
  /// What an audit without reading data finds wrong.
  std::vector<std::string> problems();
  /// Fails the test if the server no longer answers.
  void expect_alive();

  // Short ways to well-formed requests.
  static wire::WriterOpenT writer_open(std::uint32_t rank = 0, std::uint32_t ranks = 1,
                                       const std::string& stream = "flow");
  static wire::ReaderOpenT reader_open(const std::string& consumer = {}, const std::string& stream = "flow");
  /// Asks for space of an open step and writes a part of it that names all of it.
  static wire::PartT part_of(RawClient& client, std::uint64_t step, std::uint64_t bytes = 8192);
  /// Writes one step as the only rank.
  static void write_step(RawClient& client, std::uint64_t step, std::uint64_t bytes = 8192);
  /// A connection that is the only rank of the stream's group.
  RawClient writer(const std::string& stream = "flow");
  RawClient reader(const wire::ReaderOpenT& asked);
  static std::unique_ptr<wire::StepEventT> wait_step(RawClient& client);
  /// What the server says of res/flow.
  std::unique_ptr<wire::StreamT> stream();

  TemporaryDirectory directory_;
  server::ServerOptions options_;
  std::string socket_path_;

 private:
  void start();
  void stop();

  std::unique_ptr<server::Server> server_;
  std::thread thread_;
};

}  // namespace forebay::testing
