// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <forebay/manager_request.h>
#include <forebay/unix_socket.h>

#include "base/descriptor.h"
#include "tests/support/temporary_directory.h"

namespace forebay {
namespace {

const std::string request = "POST /calls HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n\r\n";
constexpr ManagerWaits long_waits{.connection = std::chrono::minutes{1}, .part = std::chrono::minutes{1}};
constexpr ManagerWaits short_waits{.connection = std::chrono::milliseconds{20}, .part = std::chrono::milliseconds{20}};

class ManagerRequestTest : public ::testing::Test {
 protected:
  void listen() {
    socket_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind_unix(socket_.get(), root() + "/socket"), 0);
    ASSERT_EQ(::listen(socket_.get(), 1), 0);
    std::ofstream(root() + "/manager-endpoint") << root() << "/socket\n";
  }

  std::string root() const { return directory_.path(); }

  /// What the manager reads when somebody has asked it and it answers so.
  std::future<std::string> answers(std::string_view text) {
    return std::async(std::launch::async, [this, text] {
      const Descriptor connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string read(request.size(), '\0');
      const ssize_t count = ::recv(connection.get(), read.data(), read.size(), MSG_WAITALL);
      read.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
      EXPECT_EQ(::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
      return read;
    });
  }

  /// The reason why there is no answer; 0: there is one.
  int failure(ManagerWaits waits, const std::function<bool()>& interrupted = {}) const {
    errno = 0;
    const bool answered = ask_manager(root(), request, waits, interrupted).has_value();
    return answered ? 0 : errno;
  }

 private:
  testing::TemporaryDirectory directory_;
  Descriptor socket_;
};

TEST_F(ManagerRequestTest, a_whole_answer_has_its_status_its_headers_and_its_body) {
  listen();
  auto manager = answers(
      "HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\nForebay-Error:  not_found\r\nX-Forebay-Exit-Status: "
      "17\r\n\r\nno\r\n");
  const auto answer = ask_manager(root(), request, long_waits);
  EXPECT_EQ(manager.get(), request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 409);
  EXPECT_EQ(answer->body, "no\r\n");
  EXPECT_EQ(answer->header("forebay-error"), "not_found");
  EXPECT_EQ(answer->number("x-forebay-exit-status"), 17);
  EXPECT_EQ(answer->number("forebay-error"), std::nullopt);
  EXPECT_EQ(answer->header("error"), std::nullopt);
}

TEST_F(ManagerRequestTest, half_an_answer_is_none) {
  for (const char* const text :
       {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhal"}) {
    SCOPED_TRACE(text);
    listen();
    auto manager = answers(text);
    EXPECT_EQ(failure(long_waits), ECONNRESET);
    manager.get();
    ASSERT_EQ(::unlink((root() + "/socket").c_str()), 0);
  }
}

TEST_F(ManagerRequestTest, a_root_without_a_manager_differs_from_a_manager_that_is_away) {
  EXPECT_EQ(failure(long_waits), ENOENT);
  listen();
  ASSERT_EQ(::unlink((root() + "/socket").c_str()), 0);
  EXPECT_EQ(failure(long_waits), ECONNREFUSED);
}

TEST_F(ManagerRequestTest, a_silent_manager_is_waited_for_until_the_time_is_up) {
  listen();
  // Nobody accepts them: the first fill the queue, and the others do not get into it.
  for (int number = 0; number < 4; ++number) EXPECT_EQ(failure(short_waits), ETIMEDOUT);
  EXPECT_EQ(failure(short_waits, [] { return false; }), ETIMEDOUT);
}

TEST_F(ManagerRequestTest, who_waits_can_be_interrupted) {
  listen();
  int asked = 0;
  EXPECT_EQ(failure({}, [&] { return ++asked == 2; }), ECANCELED);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace forebay
