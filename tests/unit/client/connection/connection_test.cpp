// SPDX-License-Identifier: Apache-2.0
// Connections to a server that misbehaves in ways the real one does not: answers in another order, answers that nobody
// asked for, garbage, silence.
#include "client/connection/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include <gtest/gtest.h>

namespace forebay::client {
namespace {

using protocol::Message;
using protocol::MessageSocket;
using protocol::MessageType;

/// Accepts one client, greets it and then follows a script.
class ScriptedServer {
 public:
  using Script = std::function<void(MessageSocket&)>;

  explicit ScriptedServer(Script script, std::uint32_t version = protocol::protocol_version) {
    std::string pattern = "/tmp/forebay-test-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    thread_ = std::thread([this, script = std::move(script), version] {
      Descriptor accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!accepted.valid()) return;
      MessageSocket socket(std::move(accepted));
      const auto hello = next(socket);
      if (!hello) return;
      wire::WelcomeT welcome;
      welcome.version = version;
      welcome.server_run = 42;
      answer(socket, MessageType::welcome, hello->request, welcome);
      if (script) script(socket);
      // Until the client has gone.
      while (next(socket)) {
      }
    });
  }
  ~ScriptedServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    std::filesystem::remove_all(directory_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string path() const { return directory_ + "/socket"; }
  Result<std::shared_ptr<Connection>> connect(InterruptHook interrupt = {}) const {
    return Connection::open({path(), {}}, Deadline::after_ms(10'000), std::move(interrupt));
  }

  static std::optional<Message> next(MessageSocket& socket) {
    while (true) {
      if (auto message = socket.pop()) return message;
      pollfd entry{socket.descriptor(), POLLIN, 0};
      ::poll(&entry, 1, -1);
      if (!socket.receive()) return socket.pop();
    }
  }
  template <class Object>
  static void answer(MessageSocket& socket, MessageType type, std::uint32_t request, const Object& body) {
    const auto packed = protocol::pack(body);
    EXPECT_TRUE(socket.send(type, request, {packed.data(), packed.size()}));
  }

 private:
  std::string directory_;
  Descriptor listener_;
  std::thread thread_;
};

wire::StepGetT get(std::uint64_t step) {
  wire::StepGetT request;
  request.step = step;
  return request;
}

// Answers a StepGet with the number that was asked for.
void answer_get(MessageSocket& socket, const Message& message) {
  wire::StepEventT event;
  event.skipped = (*protocol::body_of<wire::StepGet>(message))->step();
  ScriptedServer::answer(socket, MessageType::step_event, message.request, event);
}

std::uint64_t answered(const Message& message) {
  return (*protocol::body_of<wire::StepEvent>(message))->skipped();
}

TEST(Connection, answers_in_another_order_are_kept) {
  const ScriptedServer server([](MessageSocket& socket) {
    const auto first = ScriptedServer::next(socket);
    const auto second = ScriptedServer::next(socket);
    answer_get(socket, *second);
    answer_get(socket, *first);
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection) << connection.error().message();
  EXPECT_EQ((*connection)->server_run(), 42U);
  const auto first = (*connection)->start(MessageType::step_get, get(1));
  const auto second = (*connection)->start(MessageType::step_get, get(2));
  EXPECT_EQ(answered(*(*connection)->wait(*first, Deadline::never())), 1U);
  EXPECT_EQ(answered(*(*connection)->wait(*second, Deadline::after_ms(0))), 2U);
}

TEST(Connection, threads_get_their_own_answers) {
  constexpr std::uint64_t requests = 200;
  constexpr std::uint64_t threads = 4;
  const ScriptedServer server([](MessageSocket& socket) {
    for (std::uint64_t i = 0; i < requests * threads; ++i) answer_get(socket, *ScriptedServer::next(socket));
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection);
  std::vector<std::future<void>> askers;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    askers.push_back(std::async(std::launch::async, [&, thread] {
      for (std::uint64_t i = 0; i < requests; ++i) {
        auto answer = (*connection)->call(MessageType::step_get, get(thread * requests + i), MessageType::step_event);
        ASSERT_TRUE(answer) << answer.error().message();
        ASSERT_EQ(answered(*answer), thread * requests + i);
      }
    }));
  }
  for (auto& asker : askers) asker.get();
}

TEST(Connection, what_nobody_asked_for_is_dropped) {
  const ScriptedServer server([](MessageSocket& socket) {
    ScriptedServer::answer(socket, MessageType::done, 7777, wire::DoneT());
    ScriptedServer::answer(socket, MessageType::done, 0, wire::DoneT());
    answer_get(socket, *ScriptedServer::next(socket));
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection);
  auto answer = (*connection)->call(MessageType::step_get, get(3), MessageType::step_event);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answered(*answer), 3U);
  EXPECT_TRUE((*connection)->take_unwanted_steps().empty());
}

TEST(Connection, forgotten_steps_are_given_to_whoever_releases_them) {
  const ScriptedServer server([](MessageSocket& socket) {
    for (int i = 0; i < 3; ++i) answer_get(socket, *ScriptedServer::next(socket));
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection);
  const auto before = (*connection)->start(MessageType::step_get, get(1));
  const auto after = (*connection)->start(MessageType::step_get, get(2));
  (*connection)->forget(*before);
  ASSERT_TRUE((*connection)->call(MessageType::step_get, get(3), MessageType::step_event));
  (*connection)->forget(*after);  // It has come already.
  const auto steps = (*connection)->take_unwanted_steps();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(answered(steps[0]), 1U);
  EXPECT_EQ(answered(steps[1]), 2U);
  EXPECT_TRUE((*connection)->take_unwanted_steps().empty());
}

TEST(Connection, silence_ends_at_the_deadline_and_the_answer_may_come_later) {
  std::promise<void> may_answer;
  const ScriptedServer server([&](MessageSocket& socket) {
    const auto message = ScriptedServer::next(socket);
    may_answer.get_future().wait();
    answer_get(socket, *message);
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection);
  const auto request = (*connection)->start(MessageType::step_get, get(9));
  EXPECT_EQ((*connection)->wait(*request, Deadline::after_ms(20)).error().code, ErrorCode::timeout);
  EXPECT_FALSE((*connection)->is_broken());
  may_answer.set_value();
  EXPECT_EQ(answered(*(*connection)->wait(*request, Deadline::never())), 9U);
}

TEST(Connection, garbage_breaks_it) {
  const ScriptedServer server([](MessageSocket& socket) {
    (void)ScriptedServer::next(socket);
    const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_GT(::write(socket.descriptor(), text, sizeof text), 0);
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection);
  auto answer = (*connection)->call(MessageType::step_get, get(1), MessageType::step_event);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::protocol);
  EXPECT_TRUE((*connection)->is_broken());
}

TEST(Connection, answer_of_another_type_is_an_error) {
  const ScriptedServer server([](MessageSocket& socket) {
    ScriptedServer::answer(socket, MessageType::done, ScriptedServer::next(socket)->request, wire::DoneT());
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection);
  EXPECT_EQ((*connection)->call(MessageType::step_get, get(1), MessageType::step_event).error().code,
            ErrorCode::protocol);
}

TEST(Connection, failure_of_the_server_is_returned_with_its_words) {
  const ScriptedServer server([](MessageSocket& socket) {
    wire::FailureT failure;
    failure.code = static_cast<std::uint8_t>(ErrorCode::busy);
    failure.what = "held by 17";
    failure.where = "here";
    ScriptedServer::answer(socket, MessageType::failure, ScriptedServer::next(socket)->request, failure);
  });
  auto connection = server.connect();
  ASSERT_TRUE(connection);
  auto answer = (*connection)->call(MessageType::step_get, get(1), MessageType::step_event);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::busy);
  EXPECT_EQ(answer.error().message(), "held by 17 (here)");
  EXPECT_FALSE((*connection)->is_broken());
}

TEST(Connection, another_version_is_refused) {
  const ScriptedServer server({}, 99);
  auto connection = server.connect();
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, ErrorCode::unsupported);
}

TEST(Connection, nobody_there_says_what_to_do) {
  auto connection = Connection::open({"/tmp/forebay-test-nowhere/socket", {}}, Deadline::after_ms(1000), {});
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, ErrorCode::disconnected);
  EXPECT_NE(connection.error().message().find("forebay up"), std::string::npos);
}

TEST(Connection, path_that_the_system_cannot_take_asks_for_a_shorter_one) {
  // The name alone is too long for the kernel, in the folder that is ours and in any other.
  for (const std::string folder : {"", "/tmp/"}) {
    const auto connection = Connection::open({folder + std::string(200, 'x'), {}}, Deadline::after_ms(1000), {});
    ASSERT_FALSE(connection);
    EXPECT_EQ(connection.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(connection.error().message().find("shorter"), std::string::npos) << connection.error().message();
  }
}

}  // namespace
}  // namespace forebay::client
