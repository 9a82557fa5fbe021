// SPDX-License-Identifier: Apache-2.0
// A writer whose server's disk fails: the server runs in this process, on a disk that does as it is told.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
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
    start();
    ::setenv("FOREBAY_SOCKET", directory_.path("socket").c_str(), 1);
    server_.create("res", 64 * mib);
  }
  void TearDown() override {
    ::unsetenv("FOREBAY_SOCKET");
    if (!own_server_) return;
    stop();
    EXPECT_TRUE(own_server_->flush_everything());
  }
  void start() {
    server::ServerOptions options;
    options.root = directory_.path("root");
    options.socket_path = directory_.path("socket");
    options.capacity_bytes = 256 * mib;
    options.flush_interval_ms = -1;
    auto server = server::Server::start(disk_, options);
    ASSERT_TRUE(server) << server.error().message();
    own_server_ = std::move(*server);
    thread_ = std::thread([this] { own_server_->run(); });
  }
  void stop() {
    own_server_->loop().post([this] { own_server_->stop(); });
    thread_.join();
  }
  /// The server ends without flushing anything, and another one is started; `boot`: on a machine that was down.
  void restart(bool boot) {
    stop();
    own_server_.reset();
    if (boot) std::ofstream(directory_.path("root/boot-id")) << "another\n";
    start();
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

/// Steps that the machine's going down may have damaged, on a disk that does not answer when they are looked at.
class UncheckedStream : public FailedStream {
 protected:
  void SetUp() override {
    FailedStream::SetUp();
    auto writer = open_writer();
    for (int step = 0; step < 3; ++step) write_step(*writer, 1000, step);
    auto reader = open_reader();
    for (int step = 0; step < 3; ++step) ASSERT_OK(reader->next(10'000));
    disk_.set_unreadable("/segments/");
    restart(true);
    disk_.set_unreadable("");
    auto refused = Reader::open(*parse_address("res/flow"), {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::corrupt);
    EXPECT_NE(refused.error().message().find("cannot be told"), std::string::npos) << refused.error().message();
  }
  std::uint64_t steps_left() {
    auto reader = open_reader();
    return reader ? reader->steps()->size() : 0;
  }
};

TEST_F(UncheckedStream, loses_no_step_to_a_disk_that_does_not_answer) {
  restart(false);
  EXPECT_EQ(steps_left(), 3U);
}

TEST_F(UncheckedStream, is_checked_as_soon_as_it_can_be_read) {
  // Step 2's array begins with 2.0 at the start of a page.
  const auto segments = directory_.path("root/reservations");
  std::uint64_t damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(segments)) {
    if (entry.path().parent_path().filename() != "segments") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::vector<char> bytes(entry.file_size());
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    double two = 2.0;
    const char* value = reinterpret_cast<const char*>(&two);
    for (std::size_t at = 0; at + 16 <= bytes.size(); at += 4096) {
      if (std::memcmp(bytes.data() + at, value, sizeof two) != 0) continue;
      file.seekp(static_cast<std::streamoff>(at + 8));
      file.put('\xff');
      ++damaged;
    }
  }
  ASSERT_EQ(damaged, 1U);
  restart(false);
  EXPECT_EQ(steps_left(), 2U);
}

}  // namespace
}  // namespace forebay::testing
