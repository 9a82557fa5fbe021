// SPDX-License-Identifier: Apache-2.0
// A writer whose server's disk fails: the server runs in this process, on a disk that does as it is told.
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "staging-servers/server.h"
#include "tests/support/faulty_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

/// StreamTest's short ways, on a server of our own in place of its child process.
class FailedStream : public StreamTest {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    server::ServerOptions options;
    options.root = directory_.path("root");
    options.socket_path = directory_.path("socket");
    options.capacity_bytes = 256 * mib;
    options.flush_interval_ms = -1;
    auto server = server::Server::start(disk_, options);
    ASSERT_TRUE(server) << server.error().message();
    own_server_ = std::move(*server);
    thread_ = std::thread([this] { own_server_->run(); });
    ::setenv("FOREBAY_SOCKET", options.socket_path.c_str(), 1);
    server_.create("res", 64 * mib);
  }
  void TearDown() override {
    ::unsetenv("FOREBAY_SOCKET");
    if (!own_server_) return;
    own_server_->loop().post([this] { own_server_->stop(); });
    thread_.join();
    EXPECT_TRUE(own_server_->flush_everything());
  }

  TemporaryDirectory directory_;
  TemporaryDirectory limbo_;
  FaultyDevice disk_{limbo_.path()};
  std::unique_ptr<server::Server> own_server_;
  std::thread thread_;
};

TEST_F(FailedStream, a_step_that_committed_and_cannot_become_durable_is_not_written_over) {
  WriterOptions options;
  options.durability = Durability::durable;
  auto writer = open_writer(options);
  write_step(*writer, 100'000, 1.0);
  auto reader = open_reader();
  ASSERT_OK(reader->next(10'000));
  const std::vector<double> values(100'000, 2.0);
  const Dimensions shape{100'000};
  const Dimensions zeros{0};
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->put(whole<double>("T", shape, zeros), values.data()));
  disk_.fail_at(Operation::sync, 1);
  auto ended = writer->end_step();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::failed);
  // The program may take it for a step that does not exist, and try once more.
  (void)writer->abort_step();
  auto begun = writer->begin_step();
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, ErrorCode::failed);
  auto step = reader->step(1);
  ASSERT_OK(step);
  EXPECT_EQ(read_step(**step), values);
}

}  // namespace
}  // namespace forebay::testing
