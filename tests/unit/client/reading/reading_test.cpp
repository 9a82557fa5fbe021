// SPDX-License-Identifier: Apache-2.0
// Readers: positions, cursors, several ranks, pins and what happens without one, damaged data, threads and forked
// children.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <new>
#include <numeric>
#include <thread>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

using Reading = StreamTest;

TEST_F(Reading, next_waits_polls_and_times_out) {
  auto writer = open_writer();
  auto reader = open_reader();
  EXPECT_EQ(reader->next(0)->kind, NextStep::Kind::not_ready);
  EXPECT_EQ(reader->next(20)->kind, NextStep::Kind::not_ready);
  auto waiting = std::async(std::launch::async, [&] { return reader->next(-1); });
  write_step(*writer, 10, 1.0);
  EXPECT_EQ(waiting.get()->step->number(), 0U);
}

TEST_F(Reading, seek_moves_also_a_reader_that_waits) {
  auto writer = open_writer();
  for (int i = 0; i < 3; ++i) write_step(*writer, 10, i);
  ReaderOptions options;
  options.start.kind = Start::Kind::next;
  auto reader = open_reader(options);
  EXPECT_EQ(reader->next(0)->kind, NextStep::Kind::not_ready);
  ASSERT_OK(reader->seek(1));
  auto next = reader->next(10'000);
  ASSERT_OK(next);
  ASSERT_EQ(next->kind, NextStep::Kind::step);
  EXPECT_EQ(next->step->number(), 1U);
  EXPECT_EQ(reader->position(), 2U);
  ASSERT_OK(reader->seek(0));
  EXPECT_EQ(reader->position(), 0U);
  EXPECT_EQ(reader->next(10'000)->step->number(), 0U);
}

TEST_F(Reading, consumer_goes_on_at_its_cursor) {
  auto writer = open_writer();
  for (int i = 0; i < 4; ++i) write_step(*writer, 10, i);
  ReaderOptions options;
  options.consumer = "render";
  {
    auto reader = open_reader(options);
    auto first = reader->next(1000);
    ASSERT_OK(first);
    ASSERT_OK(reader->acknowledge(*first->step));
    EXPECT_EQ(reader->next(1000)->step->number(), 1U);
    auto other = Reader::open(*parse_address("res/flow"), options);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, ErrorCode::busy);
  }
  Result<std::unique_ptr<Reader>> again = fail(ErrorCode::busy, "");
  // The server learns of the first reader's end on its own connection.
  while (!again && again.error().code == ErrorCode::busy) again = Reader::open(*parse_address("res/flow"), options);
  ASSERT_OK(again);
  EXPECT_EQ((*again)->next(1000)->step->number(), 1U);
  auto nameless = open_reader();
  EXPECT_EQ(nameless->acknowledge(*nameless->next(1000)->step).error().code, ErrorCode::invalid_argument);
}

TEST_F(Reading, lists_and_summaries) {
  auto writer = open_writer();
  for (int i = 0; i < 3; ++i) write_step(*writer, 10, i);
  auto reader = open_reader();
  auto steps = reader->steps();
  ASSERT_OK(steps);
  ASSERT_EQ(steps->size(), 3U);
  EXPECT_EQ(steps->back().step, 2U);
  auto info = reader->info();
  ASSERT_OK(info);
  EXPECT_EQ(info->committed, 2U);
  EXPECT_EQ(info->status, StreamStatus::live);
  EXPECT_EQ(reader->step(3).error().code, ErrorCode::not_found);
}

TEST_F(Reading, blocks_of_all_ranks_are_one_array) {
  constexpr std::uint32_t ranks = 3;
  std::vector<std::future<void>> group;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    group.push_back(std::async(std::launch::async, [this, rank] {
      WriterOptions options;
      options.rank = rank;
      options.ranks = ranks;
      auto writer = open_writer(options);
      const Dimensions shape{ranks, 1000};
      const Dimensions start{rank, 0};
      const Dimensions count{1, 1000};
      for (int step = 0; step < 5; ++step) {
        const std::vector<double> values(1000, rank + 10.0 * step);
        const std::uint64_t mine = rank;
        ASSERT_OK(writer->begin_step());
        // Each rank has a variable of its own, and another order.
        if (rank == 1) ASSERT_OK(writer->put_string("only1", ShapeKind::local_value, "here"));
        ASSERT_OK(
            writer->put({"T", DataType::float64, ShapeKind::global_array, shape, start, count, {}, {}}, values.data()));
        ASSERT_OK(writer->put({"rank", DataType::uint64, ShapeKind::local_value, {}, {}, {}, {}, {}}, &mine));
        ASSERT_OK(writer->end_step());
      }
      ASSERT_OK(writer->close());
    }));
  }
  auto reader = open_reader();
  for (int step = 0; step < 5; ++step) {
    auto next = reader->next(10'000);
    while (next && next->kind == NextStep::Kind::notice) next = reader->next(10'000);
    ASSERT_OK(next);
    ASSERT_EQ(next->kind, NextStep::Kind::step);
    const Step& got = *next->step;
    const VariableInfo& variable = *got.find("T");
    EXPECT_EQ(variable.blocks.size(), ranks);
    std::vector<double> values(ranks * 1000);
    ASSERT_OK(got.read(variable, {{0, 0}, {ranks, 1000}}, values.data()));
    for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(values[rank * 1000 + 999], rank + 10.0 * step);
    std::uint64_t numbers[ranks];
    ASSERT_OK(got.read(*got.find("rank"), {{0}, {ranks}}, numbers));
    EXPECT_EQ(numbers[2], 2U);
    EXPECT_EQ(got.read_string(*got.find("only1"), 0).value(), "here");
  }
  for (auto& rank : group) rank.get();
}

TEST_F(Reading, many_steps_beyond_the_share_of_pins_are_copies) {
  auto writer = open_writer();
  // Unnamed readers may pin a quarter of the reservation.
  for (int i = 0; i < 20; ++i) write_step(*writer, mib, i);
  auto reader = open_reader();
  std::vector<std::shared_ptr<const Step>> steps;
  bool unpinned = false;
  for (int i = 0; i < 20; ++i) {
    auto next = reader->next(1000);
    ASSERT_OK(next);
    steps.push_back(next->step);
    EXPECT_EQ(read_step(*next->step).front(), i);
    if (next->step->pinned()) continue;
    unpinned = true;
    EXPECT_EQ(next->step->view(*next->step->find("T"), {{0}, {1}}).error().code, ErrorCode::unsupported);
  }
  EXPECT_TRUE(unpinned);
  // A step that goes while an unpinned handle is held is an error, never other bytes.
  WriterOptions options;
  options.mode = WriteMode::replace;
  ASSERT_OK(writer->close());
  writer = open_writer(options);
  std::vector<double> values(mib);
  auto gone = steps.back()->read(*steps.back()->find("T"), {{0}, {mib}}, values.data());
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::step_gone);
  EXPECT_EQ(read_step(*steps.front()).front(), 0.0);
}

TEST_F(Reading, flipped_bit_is_an_error_where_it_is_looked_for) {
  auto writer = open_writer();
  write_step(*writer, 100'000, 1.0);
  // Somebody scribbles over the block.
  const std::filesystem::path reservations = server_.root() + "/reservations";
  bool scribbled = false;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(reservations)) {
    if (entry.path().parent_path().filename() != "segments") continue;
    const int file = ::open(entry.path().c_str(), O_RDWR);
    ASSERT_GE(file, 0);
    double value = 0;
    if (::pread(file, &value, sizeof value, 8 * 5000) == sizeof value && value == 5001.0) {
      value = 0.0;
      scribbled = ::pwrite(file, &value, sizeof value, 8 * 5000) == sizeof value;
    }
    ::close(file);
  }
  ASSERT_TRUE(scribbled);
  for (const Verify verify : {Verify::first, Verify::read}) {
    ReaderOptions options;
    options.verify = verify;
    auto reader = open_reader(options);
    auto step = reader->step(0);
    ASSERT_OK(step);
    std::vector<double> out(100'000);
    const VariableInfo& variable = *(*step)->find("T");
    auto whole_read = (*step)->read(variable, {{0}, {100'000}}, out.data());
    ASSERT_FALSE(whole_read);
    EXPECT_EQ(whole_read.error().code, ErrorCode::corrupt);
    EXPECT_NE(whole_read.error().message().find("variable T"), std::string::npos) << whole_read.error().message();
    EXPECT_FALSE((*step)->read(variable, {{0}, {3}}, out.data()));
  }
  ReaderOptions trusting;
  trusting.verify = Verify::none;
  auto reader = open_reader(trusting);
  auto step = reader->step(0);
  EXPECT_EQ((*step)->verify().error().code, ErrorCode::corrupt);
  EXPECT_EQ(read_step(**step)[5000], 0.0);
}

TEST_F(Reading, verify_without_checksums_is_refused) {
  WriterOptions options;
  options.checksums = false;
  auto writer = open_writer(options);
  write_step(*writer, 1000, 1.0);
  auto reader = open_reader();
  auto step = reader->step(0);
  ASSERT_OK(step);
  EXPECT_FALSE((*step)->find("T")->blocks[0].has_checksum);
  EXPECT_EQ((*step)->verify().error().code, ErrorCode::unsupported);
  EXPECT_EQ(read_step(**step).back(), 1000.0);
}

TEST_F(Reading, steps_are_released_when_their_last_view_dies) {
  auto writer = open_writer();
  write_step(*writer, 100'000, 1.0);
  auto reader = open_reader();
  const auto pins = [&] { return reader->steps()->front().pins; };
  auto next = reader->next(1000);
  auto again = reader->step(0);
  ASSERT_OK(again);
  auto view = next->step->view(*next->step->find("T"), {{0}, {10}});
  ASSERT_OK(view);
  EXPECT_EQ(pins(), 1U);
  next->step.reset();
  again->reset();
  EXPECT_EQ(pins(), 1U);
  view->owner.reset();
  // The release has no answer, but the list is asked for on another connection.
  while (pins() != 0) std::this_thread::yield();
}

TEST_F(Reading, many_steps_by_number_come_in_order_and_are_released) {
  WriterOptions options;
  options.retention = Retention{.last = 300, .consumers = {}, .precious_every = 0};
  auto writer = open_writer(options);
  for (int step = 0; step < 320; ++step) write_step(*writer, 1, step);
  auto reader = open_reader();
  std::vector<std::uint64_t> numbers(330);
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::vector<std::uint64_t> seen;
  ASSERT_OK(reader->for_each_step(numbers, [&](const std::shared_ptr<const Step>& step) -> Result<void> {
    EXPECT_EQ(read_step(*step).front(), static_cast<double>(step->number()));
    seen.push_back(step->number());
    return {};
  }));
  std::vector<std::uint64_t> kept(300);
  std::iota(kept.begin(), kept.end(), 20U);
  EXPECT_EQ(seen, kept);

  auto ended = reader->for_each_step(kept, [&](const std::shared_ptr<const Step>& step) -> Result<void> {
    if (step->number() == 42) return fail(ErrorCode::cancelled, "enough");
    return {};
  });
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().what, "enough");
  const auto pins = [&] {
    const auto steps = *reader->steps();
    return std::accumulate(steps.begin(), steps.end(), 0U, [](auto sum, const auto& step) { return sum + step.pins; });
  };
  while (pins() != 0) std::this_thread::yield();

  const auto without_memory = [](const std::shared_ptr<const Step>& step) -> Result<void> {
    if (step->number() == 42) throw std::bad_alloc();
    return {};
  };
  EXPECT_THROW((void)reader->for_each_step(kept, without_memory), std::bad_alloc);
  // What was on its way then goes when the reader is used again.
  ASSERT_OK(reader->step(20));
  while (pins() != 0) std::this_thread::yield();
}

TEST_F(Reading, steps_on_their_way_to_an_interrupted_call_are_released_by_the_next) {
  auto writer = open_writer();
  for (int step = 0; step < 100; ++step) write_step(*writer, 1, step);
  std::atomic<bool> interrupted = false;
  ReaderOptions options;
  options.interrupt = [&] { return interrupted.load(); };
  auto reader = open_reader(options);
  std::vector<std::uint64_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 0U);
  auto ended = reader->for_each_step(numbers, [&](const std::shared_ptr<const Step>&) -> Result<void> {
    server_.suspend();
    interrupted = true;
    return {};
  });
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::cancelled);
  interrupted = false;
  server_.resume();
  // Answered after those of the interrupted call.
  ASSERT_OK(reader->step(99));
  ASSERT_OK(reader->step(99));
  const auto steps = reader->steps();
  ASSERT_OK(steps);
  // The release of step 99 may still be on its way.
  for (std::size_t i = 0; i < 99; ++i) EXPECT_EQ((*steps)[i].pins, 0U) << "step " << i;
}

TEST_F(Reading, steps_outlive_their_reader) {
  auto writer = open_writer();
  write_step(*writer, 100'000, 1.0);
  std::shared_ptr<const Step> step;
  {
    auto reader = open_reader();
    step = reader->next(1000)->step;
  }
  EXPECT_EQ(read_step(*step).back(), 100'000.0);
  ASSERT_OK(step->view(*step->find("T"), {{0}, {100'000}}));
}

TEST_F(Reading, threads_read_and_release_while_another_follows) {
  auto writer = open_writer();
  ReaderOptions options;
  options.verify = Verify::first;
  auto reader = open_reader(options);
  std::atomic<int> failures = 0;
  std::vector<std::future<void>> readers;
  for (int i = 0; i < 40; ++i) {
    write_step(*writer, 20'000, i);
    auto next = reader->next(10'000);
    ASSERT_OK(next);
    for (int thread = 0; thread < 2; ++thread) {
      readers.push_back(std::async(std::launch::async, [&failures, step = next->step, i] {
        if (read_step(*step).front() != i) ++failures;
        if (!step->verify()) ++failures;
      }));
    }
    if (readers.size() > 8) readers.clear();
  }
  readers.clear();
  EXPECT_EQ(failures, 0);
}

TEST_F(Reading, forked_child_neither_uses_nor_ends_what_its_parent_opened) {
  auto writer = open_writer();
  write_step(*writer, 1000, 1.0);
  auto reader = open_reader();
  auto step = reader->next(1000)->step;
  ASSERT_OK(writer->begin_step());
  const pid_t child = ::fork();
  if (child == 0) {
    const double value = 0;
    const bool refused = !writer->put({"x", DataType::float64, ShapeKind::global_value, {}, {}, {}, {}, {}}, &value) &&
                         !writer->end_step() && !reader->next(0) && !reader->step(0);
    step.reset();
    reader.reset();
    writer.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_OK(writer->end_step());
  EXPECT_EQ(reader->steps()->front().pins, 1U);
  EXPECT_EQ(reader->next(1000)->step->number(), 1U);
}

TEST_F(Reading, reader_waits_for_the_stream_to_be_made) {
  auto opening = std::async(std::launch::async, [&] { return open_reader(); });
  auto writer = open_writer();
  write_step(*writer, 10, 1.0);
  auto reader = opening.get();
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->next(10'000)->step->number(), 0U);
  ReaderOptions options;
  options.open_timeout_ms = 50;
  auto missing = Reader::open(*parse_address("res/nothing"), options);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::timeout);
  EXPECT_EQ(Reader::open(*parse_address("nowhere/flow"), options).error().code, ErrorCode::not_found);
}

TEST_F(Reading, lost_writer_is_told_and_a_new_group_goes_on) {
  WriterOptions options;
  options.mode = WriteMode::append;
  auto writer = open_writer(options);
  write_step(*writer, 10, 1.0);
  auto reader = open_reader();
  EXPECT_EQ(reader->next(1000)->step->number(), 0U);
  ASSERT_OK(writer->begin_step());
  writer.reset();
  auto next = reader->next(10'000);
  ASSERT_OK(next);
  EXPECT_EQ(next->kind, NextStep::Kind::notice);
  EXPECT_EQ(next->status, StreamStatus::interrupted);
  writer = open_writer(options);
  EXPECT_EQ(writer->current_step(), 1U);
  write_step(*writer, 10, 2.0);
  next = reader->next(10'000);
  while (next && next->kind == NextStep::Kind::notice) next = reader->next(10'000);
  ASSERT_OK(next);
  EXPECT_EQ(next->step->number(), 1U);
  EXPECT_EQ(read_step(*next->step).front(), 2.0);
}

}  // namespace
}  // namespace forebay::testing
