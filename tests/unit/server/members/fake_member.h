// SPDX-License-Identifier: Apache-2.0
// A server of a pool that says to a home what the test wants it to say.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fabric/token.h"
#include "protocol/message_socket.h"

namespace forebay::testing {

class FakeMember {
 public:
  struct Answer {
    protocol::MessageType type = protocol::MessageType::none;
    std::vector<std::uint8_t> body;
  };
  template <class Table>
  static Answer answer(protocol::MessageType type, const Table& table) {
    const auto packed = protocol::pack(table);
    return {type, {packed.data(), packed.data() + packed.size()}};
  }
  /// Called in the thread of the connection, which waits for it; other connections do not.
  using Handler = std::function<Answer(const protocol::Message&)>;

  /// `uuid`: of its root.
  FakeMember(const fabric::TokenKey& key, std::string uuid);
  ~FakeMember();
  FakeMember(const FakeMember&) = delete;
  FakeMember& operator=(const FakeMember&) = delete;

  const std::string& address() const noexcept { return address_; }
  /// From now on that is what such messages are answered with. What has no handler ends its connection.
  void on(protocol::MessageType type, Handler handler);

 private:
  void accept();
  void serve(Descriptor socket);
  /// True once the peer has proved itself.
  bool greet(protocol::MessageSocket& socket);
  /// Nothing if the connection has ended, or the test has.
  std::unique_ptr<protocol::Message> next(protocol::MessageSocket& socket);

  const fabric::TokenKey key_;
  const std::string uuid_;
  Descriptor listener_;
  std::string address_;
  std::mutex mutex_;
  std::map<protocol::MessageType, Handler> handlers_;  // guarded by mutex_
  std::vector<std::thread> connections_;               // of the accepting thread
  std::atomic<bool> ending_ = false;
  std::thread acceptor_;
};

}  // namespace forebay::testing
