// SPDX-License-Identifier: Apache-2.0
// A writer whose server's disk fails: the server runs in this process, on a disk that does as it is told.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <forebay/admin.h>

#include "base/log.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

/// StreamTest's short ways, on a server of our own in place of its child process.
class FailedStream : public StreamTest {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    ASSERT_OK(own_server_.start());
    ASSERT_OK(own_server_.create("res", 64 * mib));
  }
  void TearDown() override {
    if (own_server_.runs()) {
      EXPECT_TRUE(own_server_.flush_and_stop());
    }
  }
  void restart(bool boot, const std::function<void()>& meanwhile = [] {}) {
    ASSERT_OK(own_server_.restart(boot, meanwhile));
  }

  ServerOnDisk own_server_;
  FaultyDevice& disk_ = own_server_.disk();
};

// crash-matrix: sync of a durable step | server, the disk's sync fails | the step stays readable and its space is not written over; the stream says failed
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

// crash-matrix: withdrawal by append_after | server, dies between the withdrawal and the moving back of cursors | cursors are set back when the server starts: no consumer misses a step
TEST_F(FailedStream, a_cursor_that_could_not_be_set_back_is_when_the_server_starts) {
  auto writer = open_writer();
  for (int step = 0; step < 3; ++step) write_step(*writer, 10, step);
  ASSERT_OK(writer->close());
  ReaderOptions consumer;
  consumer.consumer = "render";
  // The steps that a close flushes are recorded as durable behind its answer: the record must be there before it
  // counts.
  consumer.min_watermark = Watermark::durable;
  auto reader = open_reader(consumer);
  for (int step = 0; step < 3; ++step) ASSERT_OK(reader->acknowledge(*reader->next(10'000)->step));
  reader.reset();
  WriterOptions options;
  options.mode = WriteMode::append;
  options.append_after = 0;
  disk_.fail_at(Operation::write, 2);
  const auto refused = Writer::open(*parse_address("res/flow"), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::failed);
  restart(false);
  options.append_after.reset();
  writer = open_writer(options);
  ASSERT_EQ(writer->current_step(), 1U);
  write_step(*writer, 10, 7.0);
  consumer.min_watermark = Watermark::committed;
  reader = open_reader(consumer);
  const auto next = reader->next(10'000);
  ASSERT_OK(next);
  ASSERT_EQ(next->kind, NextStep::Kind::step);
  EXPECT_EQ(next->step->number(), 1U);
}

/// Clients write to the same disk as the server.
class SharedDisk : public FailedStream {
 protected:
  void SetUp() override {
    FailedStream::SetUp();
    own_server_.share_with_clients();
  }
};

// crash-matrix: put of a step | client, the disk's write fails | all steps before; this one does not exist, and can be written anew
TEST_F(SharedDisk, a_step_whose_data_could_not_be_written_does_not_exist) {
  auto writer = open_writer();
  write_step(*writer, 100'000, 1.0);
  const std::vector<double> values(100'000, 2.0);
  const Dimensions shape{100'000};
  const Dimensions zeros{0};
  ASSERT_OK(writer->begin_step());
  disk_.fail_at(Operation::write, 1);
  auto put = writer->put(whole<double>("T", shape, zeros), values.data());
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::io_error);
  EXPECT_FALSE(writer->end_step());
  ASSERT_OK(writer->abort_step());
  write_step(*writer, 100'000, 3.0);
  auto reader = open_reader();
  EXPECT_EQ(reader->steps()->size(), 2U);
  EXPECT_EQ(read_step(**reader->step(1)).front(), 3.0);
}

// crash-matrix: power loss | server and writers, after any number of steps | the durable prefix or longer, byte for byte
TEST_F(SharedDisk, what_was_told_to_be_durable_outlasts_a_loss_of_power) {
  std::uint64_t lost = 0;
  for (std::uint64_t round = 0; round < test_count(20); ++round) {
    SCOPED_TRACE("FOREBAY_TEST_SEED=" + std::to_string(test_seed() + round));
    Random random(test_seed() + round);
    const std::string stream = "flow" + std::to_string(round);
    const std::uint64_t durable = below(random, 4);
    const std::uint64_t committed = below(random, 4);
    const auto elements_of = [](std::uint64_t step) { return 1 + step * 7919 % 20'000; };
    WriterOptions options;
    options.mode = WriteMode::append;
    options.durability = Durability::durable;
    auto writer = open_writer(options, stream);
    for (std::uint64_t step = 0; step < durable; ++step) write_step(*writer, elements_of(step), double(step));
    ASSERT_OK(writer->close());
    options.durability = Durability::committed;
    writer = open_writer(options, stream);
    for (std::uint64_t step = durable; step < durable + committed; ++step)
      write_step(*writer, elements_of(step), double(step));
    restart(true, [&] {
      writer.reset();
      disk_.lose_power(random);
    });
    auto reader = open_reader({}, stream);
    if (!reader) return;
    const auto kept = reader->steps();
    ASSERT_OK(kept);
    EXPECT_GE(kept->size(), durable);
    EXPECT_LE(kept->size(), durable + committed);
    lost += durable + committed - kept->size();
    for (std::uint64_t step = 0; step < kept->size(); ++step) {
      ASSERT_EQ((*kept)[step].step, step);
      auto read = reader->step(step);
      ASSERT_OK(read);
      ASSERT_OK((*read)->verify());
      const auto values = read_step(**read);
      ASSERT_EQ(values.size(), elements_of(step));
      EXPECT_EQ(values.back(), double(step) + double(elements_of(step) - 1));
    }
    // The stream goes on behind what is left.
    writer = open_writer(options, stream);
    EXPECT_EQ(writer->current_step(), kept->size());
    write_step(*writer, 10, 1.0);
    ASSERT_OK(writer->close());
    auto admin = Admin::connect();
    ASSERT_OK(admin);
    const auto findings = (*admin)->audit(true);
    ASSERT_OK(findings);
    for (const Finding& finding : *findings)
      EXPECT_NE(finding.severity, Finding::Severity::problem) << finding.where << ": " << finding.what;
    reader.reset();
    ASSERT_OK((*admin)->remove_stream(*parse_address("res/" + stream), true));
  }
  EXPECT_TRUE(lost > 0 || test_count(20) < 20) << "the disk has forgotten nothing";
}

// crash-matrix: removing a stream | disk, when the server is started while a reader holds a step of a stream whose journal cannot be read then; the stream is to be removed | an error that says who holds it, and the step as it was; it is removed when the reader has let go
TEST_F(FailedStream, that_cannot_be_read_is_not_removed_under_a_reader) {
  auto writer = open_writer();
  write_step(*writer, 1000, 7.0);
  ASSERT_OK(writer->close());
  auto reader = open_reader();
  auto next = reader->next(10'000);
  ASSERT_OK(next);
  const VariableInfo* variable = next->step->find("T");
  auto view = next->step->view(*variable, {{0}, variable->shape});
  ASSERT_OK(view);
  disk_.set_unreadable("/streams/");
  restart(false);
  disk_.set_unreadable("");
  auto admin = Admin::connect();
  ASSERT_OK(admin);
  const auto remove = [&] { return (*admin)->remove_stream(*parse_address("res/flow"), true); };
  const auto refused = remove();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::busy);
  EXPECT_NE(refused.error().message().find("from before the server's start"), std::string::npos)
      << refused.error().message();
  reader.reset();
  next->step.reset();
  ASSERT_FALSE(remove()) << "the view is still there";
  *view = {};
  ASSERT_OK(remove());
  auto other = open_writer();
  write_step(*other, 1000, 8.0);
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
    EXPECT_NE(refused.error().message().find("cannot tell"), std::string::npos) << refused.error().message();
  }
  std::uint64_t steps_left() {
    auto reader = open_reader();
    return reader ? reader->steps()->size() : 0;
  }
};

// crash-matrix: recovery after a loss of power | server, the disk does not answer | every step: the stream stays closed until it can be checked
TEST_F(UncheckedStream, loses_no_step_to_a_disk_that_does_not_answer) {
  restart(false);
  EXPECT_EQ(steps_left(), 3U);
}

TEST_F(UncheckedStream, is_checked_as_soon_as_it_can_be_read) {
  // Step 2's array begins with 2.0 at the start of a page.
  const auto segments = own_server_.root() + "/reservations";
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
