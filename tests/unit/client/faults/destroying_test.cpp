// SPDX-License-Identifier: Apache-2.0
// A reservation that is destroyed under its clients, while its files are on their way out.
#include <chrono>
#include <future>

#include "base/log.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class Destroying : public StreamTest {
 protected:
  void SetUp() override {
    ASSERT_OK(own_server_.start());
    ASSERT_OK(own_server_.create("res", 64 * mib));
  }
  void TearDown() override { disk_.set_renames_held(false); }

  static std::unique_ptr<Admin> admin() {
    auto connected = Admin::connect();
    EXPECT_TRUE(connected) << connected.error().message();
    return connected ? std::move(*connected) : nullptr;
  }

  static Result<void> write_value(Writer& writer) {
    const double value = 2.0;
    if (auto begun = writer.begin_step(); !begun) return fail(std::move(begun.error()));
    const BlockSpec block{"x", DataType::float64, ShapeKind::global_value, {}, {}, {}, {}, {}};
    if (auto put = writer.put(block, &value); !put) return put;
    return writer.end_step();
  }

  ServerOnDisk own_server_;
  FaultyDevice& disk_ = own_server_.disk();
  std::unique_ptr<Writer> writer_;
  std::future<Result<void>> destroying_;
  std::future<Result<void>> ending_;
};

// crash-matrix: destroying a reservation | a durable writer ends a step and a reader reads, while the files are on their way to quarantine | both are told that it is destroyed, not that a file is missing; an audit finds nothing wrong
TEST_F(Destroying, is_not_taken_for_a_failure) {
  WriterOptions options;
  options.durability = Durability::durable;
  writer_ = open_writer(options);
  write_step(*writer_, 100'000, 1.0);
  auto early_reader = open_reader();
  ASSERT_OK(early_reader->next(10'000));
  auto late_reader = open_reader();
  auto random_reader = open_reader();

  disk_.set_renames_held(true);
  destroying_ = std::async(std::launch::async, [] { return admin()->destroy_reservation("res", true); });
  disk_.await_held_rename();

  ending_ = std::async(std::launch::async, [&] { return write_value(*writer_); });
  // It has committed.
  const auto second = early_reader->next(10'000);
  ASSERT_OK(second);
  ASSERT_EQ(second->kind, NextStep::Kind::step) << second->text;
  // This one has no descriptor of the segment yet.
  const auto unread = late_reader->next(10'000);
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().code, ErrorCode::not_found) << unread.error().message();
  // Steps that cannot be had any more do not look like none.
  const auto all =
      random_reader->for_each_step(std::vector<std::uint64_t>{0, 1}, [](const auto&) { return Result<void>(); });
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, ErrorCode::not_found) << all.error().message();

  const auto findings = admin()->audit(false);
  ASSERT_OK(findings);
  for (const Finding& finding : *findings)
    EXPECT_NE(finding.severity, Finding::Severity::problem) << finding.where << ": " << finding.what;
  EXPECT_EQ(ending_.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);

  disk_.set_renames_held(false);
  ASSERT_OK(destroying_.get());
  const auto ended = ending_.get();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::not_found) << ended.error().message();
  EXPECT_NE(ended.error().message().find("the stream was removed"), std::string::npos) << ended.error().message();
}

// crash-matrix: destroying a reservation | server, the disk fails to sync either directory | its clients are told that it was destroyed; nothing else is taken for damage, and destroying it again succeeds
TEST_F(Destroying, that_could_not_be_synced_is_not_taken_back) {
  for (const std::uint64_t failing : {1, 2}) {
    SCOPED_TRACE(failing);
    writer_ = open_writer();
    write_step(*writer_, 100'000, 1.0);
    disk_.fail_at(Operation::sync_directory, failing);
    const auto destroyed = admin()->destroy_reservation("res", true);
    ASSERT_FALSE(destroyed);
    EXPECT_EQ(destroyed.error().code, ErrorCode::io_error);
    const auto written = write_value(*writer_);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::not_found) << written.error().message();
    ReaderOptions options;
    options.open_timeout_ms = 0;
    EXPECT_FALSE(Reader::open(*parse_address("res/flow"), options));
    const auto findings = admin()->audit(true);
    ASSERT_OK(findings);
    EXPECT_EQ(findings->size(), 0U) << findings->front().where << ": " << findings->front().what;
    disk_.fail_at(Operation::sync_directory, 1);
    EXPECT_FALSE(admin()->destroy_reservation("res", false));
    ASSERT_OK(admin()->destroy_reservation("res", false));
    ASSERT_OK(own_server_.create("res", 64 * mib));
  }
}

}  // namespace
}  // namespace forebay::testing
