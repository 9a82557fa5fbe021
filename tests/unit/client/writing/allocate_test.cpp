// SPDX-License-Identifier: Apache-2.0
// Computing in place: memory that is a step's own space, and where it goes when the program lets go of it.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <span>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

using Allocate = StreamTest;

/// How many mappings of segments this process has.
std::size_t mapped() {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("/segments/") != std::string::npos;
  return found;
}

/// Of this process.
std::uint64_t address_space_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(::getpagesize());
}

TEST_F(Allocate, allocated_memory_is_what_readers_see) {
  auto writer = open_writer();
  const Dimensions shape{1000, 1000};
  const Dimensions zeros{0, 0};
  ASSERT_OK(writer->begin_step());
  auto allocation = writer->allocate(whole<double>("T", shape, zeros));
  ASSERT_OK(allocation);
  ASSERT_EQ(allocation->bytes.size(), 8'000'000U);
  auto* values = reinterpret_cast<double*>(allocation->bytes.data());
  for (std::size_t i = 0; i < 1'000'000; ++i) values[i] = static_cast<double>(i);
  ASSERT_OK(writer->end_step());
  auto reader = open_reader();
  auto next = reader->next(1000);
  ASSERT_OK(next);
  ASSERT_OK(next->step->verify());
  auto view = next->step->view(*next->step->find("T"), {{0, 0}, shape});
  ASSERT_OK(view);
  EXPECT_EQ(std::memcmp(view->data, values, 8'000'000), 0);
  EXPECT_EQ(view->strides_bytes, (std::vector<std::int64_t>{8000, 8}));
}

TEST_F(Allocate, allocation_that_is_held_is_not_written_over) {
  WriterOptions options;
  options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  auto writer = open_writer(options);
  const Dimensions shape{4 * mib / 8};
  const Dimensions zeros{0};
  ASSERT_OK(writer->begin_step());
  auto allocation = writer->allocate(whole<double>("T", shape, zeros));
  ASSERT_OK(allocation);
  auto* values = reinterpret_cast<double*>(allocation->bytes.data());
  for (std::size_t i = 0; i < shape[0]; ++i) values[i] = -1.0;
  ASSERT_OK(writer->end_step());
  // Far more than the reservation holds, so that space goes round many times.
  for (int step = 1; step < 200; ++step) write_step(*writer, shape[0], 0.0);
  for (std::size_t i = 0; i < shape[0]; ++i) ASSERT_EQ(values[i], -1.0);
}

TEST_F(Allocate, space_comes_round_to_the_same_memory_unless_it_is_held) {
  WriterOptions options;
  options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  auto writer = open_writer(options);
  auto reader = open_reader();
  const Dimensions shape{4 * mib / 8};
  const Dimensions zeros{0};
  constexpr int steps = 60;
  std::set<const void*> places;
  std::shared_ptr<void> held;
  std::span<const double> held_values;
  for (int number = 0; number < steps; ++number) {
    ASSERT_OK(writer->begin_step());
    auto allocation = writer->allocate(whole<double>("T", shape, zeros));
    ASSERT_OK(allocation);
    const std::span values(reinterpret_cast<double*>(allocation->bytes.data()), shape[0]);
    if (held) {
      ASSERT_NE(values.data(), held_values.data());
    }
    std::ranges::fill(values, number);
    places.insert(values.data());
    if (number % 20 == 10) {
      held = allocation->owner;
      held_values = values;
    }
    allocation->owner.reset();
    // Memory that was given up with its step goes round as well.
    if (number % 7 == 3) {
      ASSERT_OK(writer->abort_step());
      continue;
    }
    ASSERT_OK(writer->end_step());
    auto next = reader->next(10'000);
    ASSERT_OK(next);
    ASSERT_OK(next->step->verify());
    const auto read = read_step(*next->step);
    ASSERT_TRUE(std::ranges::all_of(read, [&](double value) { return value == number; })) << "step " << number;
    ASSERT_TRUE(std::ranges::all_of(held_values, [&](double value) { return value == held_values[0]; }));
  }
  EXPECT_LT(places.size(), 40U) << "memory is mapped anew for each step";
}

TEST_F(Allocate, memory_of_all_steps_that_retention_keeps_comes_round) {
  WriterOptions options;
  options.retention = Retention{.last = 8, .consumers = {}, .precious_every = 0};
  auto writer = open_writer(options);
  const Dimensions shape{4 * mib / 8};
  const Dimensions zeros{0};
  std::set<const void*> places;
  for (int number = 0; number < 40; ++number) {
    ASSERT_OK(writer->begin_step());
    auto allocation = writer->allocate(whole<double>("T", shape, zeros));
    ASSERT_OK(allocation);
    places.insert(allocation->bytes.data());
    allocation->owner.reset();
    ASSERT_OK(writer->end_step());
  }
  EXPECT_GE(places.size(), 9U);
  EXPECT_LT(places.size(), 40U) << "memory is mapped anew for each step";
}

TEST_F(Allocate, memory_that_nobody_allocates_again_is_unmapped) {
  WriterOptions options;
  options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  auto writer = open_writer(options);
  const Dimensions shape{4 * mib / 8};
  const Dimensions zeros{0};
  const std::vector<double> values(shape[0], 1.0);
  for (int number = 0; number < 10; ++number) {
    ASSERT_OK(writer->begin_step());
    ASSERT_OK(writer->allocate(whole<double>("T", shape, zeros)));
    ASSERT_OK(writer->end_step());
  }
  EXPECT_GT(mapped(), 0U);
  for (int number = 0; number < 2; ++number) write_step(*writer, shape[0], 1.0);
  EXPECT_EQ(mapped(), 0U);
}

TEST_F(Allocate, only_so_many_idle_mappings_are_kept) {
  auto writer = open_writer();
  const Dimensions shape{4096 / sizeof(double)};
  const Dimensions zeros{0};
  ASSERT_OK(writer->begin_step());
  for (int block = 0; block < 300; ++block)
    ASSERT_OK(writer->allocate(whole<double>("T" + std::to_string(block), shape, zeros)));
  ASSERT_OK(writer->end_step());
  EXPECT_GE(mapped(), 300U);
  ASSERT_OK(writer->begin_step());
  EXPECT_LE(mapped(), 256U);
  EXPECT_GT(mapped(), 0U);
}

TEST_F(Allocate, idle_mappings_give_way_where_addresses_are_short) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more addresses than any limit leaves";
#endif
  auto writer = open_writer();
  const Dimensions zeros{0};
  const Dimensions shape{8 * mib / sizeof(double)};
  ASSERT_OK(writer->begin_step());
  for (int block = 0; block < 3; ++block)
    ASSERT_OK(writer->allocate(whole<double>("T" + std::to_string(block), shape, zeros)));
  ASSERT_OK(writer->end_step());
  ASSERT_OK(writer->begin_step());
  ASSERT_GE(mapped(), 3U);
  const rlimit limit{address_space_bytes() + 4 * mib, RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  // Of another size, so that none of them is used again.
  const Dimensions larger{10 * mib / sizeof(double)};
  auto memory = writer->allocate(whole<double>("T", larger, zeros));
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &unlimited), 0);
  ASSERT_OK(memory);
  std::ranges::fill(memory->bytes, std::byte{1});
  ASSERT_OK(writer->end_step());
  ASSERT_OK((*open_reader()->step(1))->verify());
}

TEST_F(Allocate, space_that_is_let_go_of_within_a_step_is_used_in_it) {
  WriterOptions options;
  options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  options.when_full = WhenFull::error;
  auto writer = open_writer(options);
  const Dimensions zeros{0};
  const Dimensions shape{80 * mib / sizeof(double)};
  // Given up, and looked at: nobody has the space until it is let go of.
  ASSERT_OK(writer->begin_step());
  auto held = writer->allocate(whole<double>("T", shape, zeros));
  ASSERT_OK(held);
  ASSERT_OK(writer->abort_step());
  ASSERT_OK(writer->begin_step());
  ASSERT_OK(writer->allocate(whole<double>("A", shape, zeros)));
  ASSERT_OK(writer->allocate(whole<double>("B", shape, zeros)));
  held->owner.reset();
  ASSERT_OK(writer->allocate(whole<double>("C", shape, zeros)));
  ASSERT_OK(writer->end_step());
}

}  // namespace
}  // namespace forebay::testing
