// SPDX-License-Identifier: Apache-2.0
// A client belongs to the instance that it was opened for, whatever else there is when its server is away.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class PlaceOfAServer : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("FOREBAY_SOCKET"); }
  void TearDown() override {
    ::unsetenv("FOREBAY_SOCKET");
    ::unsetenv("FOREBAY_ROOT");
    std::filesystem::current_path(before_);
  }

  void listen(const std::string& root, const std::string& path) const {
    std::filesystem::create_directories(directory_.path(root));
    std::ofstream(directory_.path(root) + "/endpoint") << path << "\n";
  }

  TemporaryDirectory directory_;
  const std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(PlaceOfAServer, is_where_the_same_root_says) {
  listen("ours", "/run/first.sock");
  listen("theirs", "/run/theirs.sock");
  std::filesystem::current_path(directory_.path("."));
  ::setenv("FOREBAY_ROOT", "ours", 1);
  auto place = ServerPlace::find();
  ASSERT_OK(place);
  EXPECT_EQ(place->socket_path, "/run/first.sock");
  // Another instance is named, also by the path that was given; ours listens elsewhere, or cannot be asked.
  std::filesystem::current_path(directory_.path("theirs"));
  ::setenv("FOREBAY_ROOT", directory_.path("theirs").c_str(), 1);
  EXPECT_EQ(place->now().socket_path, "/run/first.sock");
  listen("ours", "/run/second.sock");
  EXPECT_EQ(place->now().socket_path, "/run/second.sock");
  EXPECT_EQ(place->now().now().socket_path, "/run/second.sock");
  ::setenv("FOREBAY_SOCKET", "/run/named.sock", 1);
  EXPECT_EQ(place->now().socket_path, "/run/second.sock");
  std::filesystem::remove(directory_.path("ours") + "/endpoint");
  EXPECT_EQ(place->now().socket_path, "/run/first.sock");
}

TEST_F(PlaceOfAServer, that_was_named_stays) {
  listen("theirs", "/run/theirs.sock");
  ::setenv("FOREBAY_ROOT", directory_.path("theirs").c_str(), 1);
  EXPECT_EQ(ServerPlace::find("/run/ours.sock")->now().socket_path, "/run/ours.sock");
  ::setenv("FOREBAY_SOCKET", "/run/ours.sock", 1);
  auto place = ServerPlace::find();
  ASSERT_OK(place);
  ::unsetenv("FOREBAY_SOCKET");
  EXPECT_EQ(place->now().socket_path, "/run/ours.sock");
}

class TwoInstances : public StreamTest {
 protected:
  /// The server comes back when its client has looked for it some times.
  InterruptHook return_late() {
    return [this] {
      if (away_ && ++looks_ == 5) {
        server_.start();
        away_ = false;
      }
      return false;
    };
  }

  void lose_server() {
    server_.kill();
    away_ = true;
    looks_ = 0;
  }

  /// Another instance, with the same reservation and stream, is what the environment names from now on.
  void make_another() {
    another_ = std::make_unique<ServerProcess>();
    another_->create("res", capacity());
    write_step(*open_writer(), 10, 100.0);
  }

  std::unique_ptr<ServerProcess> another_;
  bool away_ = false;
  int looks_ = 0;
};

// crash-matrix: any call of a client | server, dead for a while beside another instance that the environment names | the call waits for its own server; the other instance's has no part in it
TEST_F(TwoInstances, clients_wait_for_their_own) {
  WriterOptions writing;
  ReaderOptions reading;
  writing.interrupt = reading.interrupt = return_late();
  auto writer = open_writer(writing);
  write_step(*writer, 10, 1.0);
  auto reader = open_reader(reading);
  auto lists = open_reader(reading);
  const std::string socket = *server_socket();
  auto by_environment = Admin::connect({}, return_late(), 60'000);
  auto by_path = Admin::connect(socket, return_late(), 60'000);
  ASSERT_OK(by_environment);
  ASSERT_OK(by_path);
  make_another();

  lose_server();
  write_step(*writer, 10, 2.0);
  for (const double first : {1.0, 2.0}) {
    lose_server();
    auto next = reader->next(-1);
    while (next && next->kind == NextStep::Kind::notice) next = reader->next(-1);
    ASSERT_OK(next);
    ASSERT_EQ(next->kind, NextStep::Kind::step) << next->text;
    EXPECT_EQ(read_step(*next->step).front(), first);
  }
  // Connects when a list is first asked for.
  auto steps = lists->steps();
  ASSERT_OK(steps);
  EXPECT_EQ(steps->size(), 2U);
  reading.server = *ServerPlace::find(socket);
  EXPECT_EQ(open_reader(reading)->steps()->size(), 2U) << "of the one that was named";
  for (Admin* admin : {by_environment->get(), by_path->get()}) {
    lose_server();
    auto known = admin->server();
    ASSERT_OK(known);
    EXPECT_EQ(known->root, server_.root());
  }
  ASSERT_OK(writer->close());
  EXPECT_EQ(read_step(**open_reader()->step(0)).front(), 100.0) << "of the other one";
}

}  // namespace
}  // namespace forebay::testing
