// SPDX-License-Identifier: Apache-2.0
// Journals that need more than is kept for them take the space of segments: a reservation never takes more than its
// capacity on the device, and gets the segments back.
#include <array>
#include <atomic>
#include <thread>

#include "base/log.h"
#include "tests/unit/client/faults/journal_room_fixture.h"

namespace forebay::testing {
namespace {

TEST_F(JournalRoom, is_taken_from_free_segments_and_given_back) {
  auto writer = open_writer();
  ASSERT_OK(write_many(*writer, steps_many));
  ASSERT_OK(writer->close());
  writer.reset();  // else its segments would be taken for written still
  EXPECT_GT(lent(), 0U);
  EXPECT_EQ(kept(), steps_many);
  check_audit();
  const auto info = admin()->reservation("res");
  ASSERT_OK(info);
  EXPECT_LT(info->used_bytes, capacity() * 3 / 4);

  // A restarted server knows which.
  ASSERT_OK(own_server_.restart(false));
  const std::size_t lent_before = lent();
  EXPECT_GT(lent_before, 0U);
  EXPECT_EQ(kept(), steps_many);
  check_audit();

  // Steps that go take their records with them.
  ASSERT_OK(admin()->set_retention(*parse_address("res/flow"), *parse_retention("last:10")));
  EXPECT_EQ(kept(), 10U);
  check_audit();
  EXPECT_EQ(lent(), 0U);
  check_capacity();
  auto large = open_writer({}, "large");
  write_step(*large, 60 * mib / sizeof(double), 1.0);
  ASSERT_OK(large->close());
  check_capacity();
}

TEST_F(JournalRoom, goes_back_with_a_stream_that_is_removed) {
  auto writer = open_writer();
  ASSERT_OK(write_many(*writer, steps_many));
  ASSERT_OK(writer->close());
  writer.reset();  // else its segments would be taken for written still
  EXPECT_GT(lent(), 0U);
  ASSERT_OK(admin()->remove_stream(*parse_address("res/flow"), true));
  EXPECT_EQ(lent(), 0U);
  auto large = open_writer({}, "large");
  write_step(*large, 60 * mib / sizeof(double), 1.0);
  ASSERT_OK(large->close());
  check_audit();
}

// crash-matrix: writing | a reservation full of steps so small that their records need more than is kept for them | an error that says so before a step is written; its capacity holds
TEST_F(JournalRoom, ends_with_an_error_when_no_segment_is_free) {
  WriterOptions options;
  options.when_full = WhenFull::error;
  auto writer = open_writer(options);
  const auto written = write_many(*writer, 100'000);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::no_space) << written.error().message();
  EXPECT_NE(written.error().message().find("by journals"), std::string::npos) << written.error().message();
  check_capacity();
  const std::uint64_t steps = kept();
  EXPECT_GT(steps, steps_many);
  ASSERT_OK(own_server_.restart(false));
  EXPECT_EQ(kept(), steps);
  check_capacity();
  check_audit();
}

TEST_F(JournalRoom, is_made_by_dropping_the_oldest_steps) {
  WriterOptions options;
  options.when_full = WhenFull::drop_oldest;
  auto writer = open_writer(options);
  std::uint64_t most = 0;
  for (int round = 0; round < 110; ++round) {
    ASSERT_OK(write_many(*writer, 200));
    const std::uint64_t now = kept();
    most = std::max(most, now);
    // Not many at once.
    EXPECT_GT(now, most - most / 8);
  }
  EXPECT_LT(most, 22'000U);
  EXPECT_GT(most, steps_many);
  ASSERT_OK(writer->close());
  check_audit();
}

TEST_F(JournalRoom, is_made_by_dropping_few_steps_of_many_ranks) {
  // Their records have a KiB and more, so that the journals are full long before the segments.
  WriterOptions options;
  options.when_full = WhenFull::drop_oldest;
  auto writers = open_group(16, options, "flow");
  ASSERT_FALSE(HasFailure());
  std::uint64_t most = 0;
  for (int round = 0; round < 30; ++round) {
    write_group(writers, 40);
    ASSERT_FALSE(HasFailure());
    const std::uint64_t now = kept();
    EXPECT_GT(now, most - most / 6);
    most = std::max(most, now);
    check_capacity();
  }
  EXPECT_LT(most, 1200U);
  for (auto& writer : writers) ASSERT_OK(writer->close());
  check_audit();
}

/// Journals that have no room left, and nowhere to take it from before one of these closes.
class FullJournals : public JournalRoom {
 protected:
  void SetUp() override {
    JournalRoom::SetUp();
    first_ = open_writer({}, "first");
    last_ = open_writer(last_asks_.options(), "last");
    ASSERT_OK(try_step(*first_, 1.0));
    // All segments are somebody's who writes, so that none can make room: three are the last one's and three the large
    // one's, whose step stays open, and each rank has one.
    write_step(*last_, 2 * mib / sizeof(double), 1.0);
    ASSERT_OK(write_many(*last_, 300));
    large_ = open_writer({}, "large");
    put_step(*large_, 5 * mib);
    for (std::size_t group = 0; group < groups; ++group) {
      groups_[group] = open_group(8, {}, "group" + std::to_string(group));
      ASSERT_FALSE(HasFailure());
    }
    huge_ = open_writer(huge_asks_.options(), "huge");
    // Three quarters of the reserve are for those that ask for space; folders count, too.
    constexpr std::uint64_t room = mib * 3 / 4 - (std::uint64_t{52} << 10);
    for (std::size_t group = 0; taken_bytes(true) < room - (std::uint64_t{16} << 10); group = (group + 1) % groups) {
      write_group(groups_[group], 1);
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_EQ(lent(), 0U);
    // The last has no room for its records; the first, whose journal has not grown, has all that it needs.
    waiting_ = std::jthread([&] {
      for (; last_written_ < 350 && !HasFailure(); ++last_written_) EXPECT_TRUE(try_step(*last_, 1.0));
      last_asks_.end();
    });
    // It waits if the server has heard what it asks for, which two round trips make sure of, and if it found no answer
    // then: the first of these two times it may have looked before.
    for (std::uint64_t written = 351; written != last_written_;) {
      written = last_written_;
      last_asks_.wait();
      for (int trip = 0; trip < 2; ++trip) kept("res/last");
      for (int ask = 0; ask < 2; ++ask) last_asks_.wait();
      ASSERT_LT(last_written_, 350U) << "it found room";
    }
  }
  /// The last one gets its room when these are gone.
  void TearDown() override {
    if (!waiting_.joinable()) return;
    for (auto& group : groups_) {
      for (auto& writer : group) ASSERT_OK(writer->close());
      group.clear();
    }
    waiting_.join();
    EXPECT_GT(lent(), 0U);
    check_capacity();
    check_audit();
  }

  /// How often a writer found no answer and asked whether to go on.
  class Asks {
   public:
    WriterOptions options() {
      WriterOptions options;
      options.interrupt = [this] {
        tell();
        return false;
      };
      return options;
    }
    void tell() {
      ++count_;
      count_.notify_all();
    }
    /// It asks no more.
    void end() {
      ended_ = true;
      tell();
    }
    /// For the next time, or the end.
    void wait() const {
      const std::uint64_t before = count_;
      if (!ended_) count_.wait(before);
    }

   private:
    std::atomic<std::uint64_t> count_ = 0;
    std::atomic<bool> ended_ = false;
  };
  static Result<void> try_put(Writer& writer, std::uint64_t bytes) {
    const std::vector<double> values(bytes / sizeof(double), 1.0);
    const Dimensions shape{values.size()};
    const Dimensions zeros{0};
    if (auto begun = writer.begin_step(); !begun) return fail(std::move(begun.error()));
    return writer.put(whole<double>("T", shape, zeros), values.data());
  }
  static void put_step(Writer& writer, std::uint64_t bytes) { ASSERT_OK(try_put(writer, bytes)); }

  static constexpr std::size_t groups = 3;
  Asks last_asks_;
  Asks huge_asks_;
  std::unique_ptr<Writer> first_;
  std::unique_ptr<Writer> last_;
  std::unique_ptr<Writer> large_;
  std::unique_ptr<Writer> huge_;
  std::array<std::vector<std::unique_ptr<Writer>>, groups> groups_;
  std::atomic<std::uint64_t> last_written_ = 0;
  std::jthread waiting_;
};

TEST_F(FullJournals, keep_nobody_waiting_who_has_room) {
  for (int step = 0; step < 50; ++step) ASSERT_OK(try_step(*first_, 2.0));
}

TEST_F(FullJournals, do_not_hide_a_wait_that_cannot_end_any_more) {
  const auto info = admin()->reservation("res");
  ASSERT_OK(info);
  // More than is free, less than there would be if the large one gave its step up.
  const std::uint64_t bytes = capacity() - info->used_bytes + 3 * mib;
  Result<void> put;
  std::jthread asking([&] {
    put = try_put(*huge_, bytes);
    huge_asks_.end();
  });
  huge_asks_.wait();
  EXPECT_EQ(kept("res/huge"), 0U);  // the server has heard the question, too
  ASSERT_OK(large_->end_step());
  asking.join();
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::no_space);
  EXPECT_NE(put.error().message().find("under way any more"), std::string::npos) << put.error().message();
}

TEST_F(JournalRoom, is_made_by_consumers_that_pass) {
  constexpr int streams = 6;
  ReaderOptions reading;
  reading.consumer = "render";
  WriterOptions options;
  options.when_full = WhenFull::error;
  options.retention = *parse_retention("consumers:render");
  std::vector<std::unique_ptr<Writer>> writers;
  std::vector<std::unique_ptr<Reader>> readers;
  for (int number = 0; number < streams; ++number) {
    const std::string name = "flow" + std::to_string(number);
    writers.push_back(open_writer(options, name));
    readers.push_back(open_reader(reading, name));
    if (number > 0) ASSERT_OK(write_many(*writers.back(), 300));
  }
  // The first has most of the room.
  ASSERT_FALSE(write_many(*writers[0], 100'000));
  const std::uint64_t steps = kept("res/flow0");
  EXPECT_GT(steps, steps_many / 2);
  // Each acknowledgement is a record of where the consumer is, and one of the step that goes; the others' come first.
  for (int number = streams - 1; number >= 0; --number) {
    for (std::uint64_t step = 0; step < (number > 0 ? 300 : steps); ++step) {
      const auto next = readers[number]->next(10'000);
      ASSERT_OK(next);
      ASSERT_EQ(next->kind, NextStep::Kind::step);
      ASSERT_OK(readers[number]->acknowledge(*next->step));
      if (step % 500 == 0) check_capacity();
    }
  }
  ASSERT_OK(write_many(*writers[0], 1000));
  check_audit();
  EXPECT_EQ(lent(), 0U);
}

TEST_F(JournalRoom, is_made_by_what_is_free_beside_steps) {
  // One step in each segment, and more.
  std::optional<Error> refused;
  std::uint64_t streams = 0;
  for (; streams < 2000 && !refused; ++streams) {
    auto writer = Writer::open(*parse_address("res/stream" + std::to_string(streams)), {});
    Result<void> written = writer ? try_step(**writer, 1.0) : fail(writer.error());
    if (written) written = (*writer)->close();
    if (!written) refused = written.error();
    check_capacity();
  }
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::no_space) << refused->message();
  EXPECT_GT(streams, 300U);
  check_audit();
  ASSERT_OK(own_server_.restart(false));
  check_capacity();
  check_audit();
  // What was taken for them comes back with them.
  const auto rows = admin()->streams("res");
  ASSERT_OK(rows);
  for (const StreamInfo& row : *rows) ASSERT_OK(admin()->remove_stream(*parse_address("res/" + row.name), true));
  EXPECT_EQ(lent(), 0U);
  auto large = open_writer({}, "large");
  write_step(*large, 60 * mib / sizeof(double), 1.0);
}

// crash-matrix: making room for journals | a segment's space cannot be given back, at each first try | journals are rolled; an error only when the reservation is full
TEST_F(JournalRoom, is_made_otherwise_where_a_segment_cannot_make_it) {
  WriterOptions options;
  options.when_full = WhenFull::error;
  auto writer = open_writer(options);
  log::set_level(log::Level::off);
  Result<void> written;
  for (std::uint64_t n = 1; written && n < 20'000; ++n) {
    disk_.fail_at(Operation::free_space, 1, ErrorCode::io_error);
    written = try_step(*writer, 1.0);
  }
  log::set_level(log::Level::error);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::no_space) << written.error().message();
  EXPECT_GT(kept(), steps_many);
  check_capacity();
  check_audit();
}

}  // namespace
}  // namespace forebay::testing
