// SPDX-License-Identifier: Apache-2.0
// Memory from allocate that the program goes on to look at when its step has ended: nobody writes over it, whatever
// becomes of the step, of the other ranks and of the server.
#include <algorithm>
#include <chrono>
#include <future>
#include <span>

#include <forebay/admin.h>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class HeldMemory : public StreamTest {
 protected:
  static constexpr std::size_t held_elements = 4 * mib / sizeof(double);
  // Two of them and what is held nearly fill the reservation, so that each rank writes wherever there is room.
  static constexpr std::size_t large_elements = 25 * mib / sizeof(double);

  std::uint64_t capacity() const override { return 64 * mib; }

  /// Two ranks of a group that keeps its last step.
  std::pair<std::unique_ptr<Writer>, std::unique_ptr<Writer>> open_ranks() {
    WriterOptions options;
    options.ranks = 2;
    options.block_timeout_ms = 10'000;
    options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
    auto first = std::async(std::launch::async, [&] { return open_writer(options); });
    WriterOptions other = options;
    other.rank = 1;
    auto second = open_writer(other);
    return {first.get(), std::move(second)};
  }

  /// A step of rank 0 in which it computes in place.
  static Writer::Allocation allocate_step(Writer& writer, double value) {
    const Dimensions shape{held_elements};
    const Dimensions zeros{0};
    EXPECT_TRUE(writer.begin_step());
    auto allocation = writer.allocate(whole<double>("held", shape, zeros));
    EXPECT_TRUE(allocation) << allocation.error().message();
    std::ranges::fill(values_of(*allocation), value);
    return *allocation;
  }
  static std::span<double> values_of(const Writer::Allocation& allocation) {
    return {reinterpret_cast<double*>(allocation.bytes.data()), held_elements};
  }
  static bool is_still(const Writer::Allocation& allocation, double value) {
    return std::ranges::all_of(values_of(allocation), [value](double element) { return element == value; });
  }

  /// Steps in which rank 1 writes a large array, rank 0 next to nothing.
  static void write_steps(Writer& first, Writer& second, int steps) {
    auto small = std::async(std::launch::async, [&] {
      for (int step = 0; step < steps; ++step) write_step(first, 1, 0.0);
    });
    for (int step = 0; step < steps; ++step) {
      const std::vector<double> values(large_elements, 1.0);
      const Dimensions shape{large_elements};
      const Dimensions zeros{0};
      ASSERT_OK(second.begin_step());
      ASSERT_OK(second.put(whole<double>("large", shape, zeros), values.data()));
      ASSERT_OK(second.end_step());
    }
    small.get();
  }

  std::uint64_t used_bytes() {
    auto admin = Admin::connect();
    EXPECT_TRUE(admin) << admin.error().message();
    auto info = (*admin)->reservation("res");
    EXPECT_TRUE(info) << info.error().message();
    return info->used_bytes;
  }
  /// Waits until the server has heard of what was let go of.
  bool comes_below(std::uint64_t bytes) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      if (used_bytes() < bytes) return true;
    }
    return false;
  }
};

TEST_F(HeldMemory, is_not_written_over_by_another_rank) {
  auto [first, second] = open_ranks();
  auto other = std::async(std::launch::async, [&] { write_step(*second, 1, 0.0); });
  auto held = allocate_step(*first, 7.0);
  ASSERT_OK(first->end_step());
  other.get();
  write_steps(*first, *second, 6);
  EXPECT_TRUE(is_still(held, 7.0));
  const std::uint64_t before = used_bytes();
  held.owner.reset();
  EXPECT_TRUE(comes_below(before - held_elements * sizeof(double) + 1)) << used_bytes() << " of " << before;
  write_steps(*first, *second, 2);
}

TEST_F(HeldMemory, outlasts_restarts_of_the_server) {
  auto [first, second] = open_ranks();
  auto other = std::async(std::launch::async, [&] { write_step(*second, 1, 0.0); });
  auto early = allocate_step(*first, 7.0);
  ASSERT_OK(first->end_step());
  other.get();
  server_.kill();
  server_.start();
  write_steps(*first, *second, 2);

  // The other part of this step comes to the server that is started then.
  auto late = allocate_step(*first, 8.0);
  auto ended = std::async(std::launch::async, [&] { return first->end_step(); });
  ASSERT_OK(second->begin_step());
  server_.kill();
  server_.start();
  ASSERT_OK(second->end_step());
  ASSERT_OK(ended.get());
  server_.kill();
  server_.start();
  early.owner.reset();  // while it says so to a server that does not know it yet
  write_steps(*first, *second, 6);
  EXPECT_TRUE(is_still(late, 8.0));
  const std::uint64_t before = used_bytes();
  late.owner.reset();
  EXPECT_TRUE(comes_below(before - held_elements * sizeof(double) + 1)) << used_bytes() << " of " << before;
}

TEST_F(HeldMemory, of_a_step_that_cannot_be_is_not_pinned) {
  auto [first, second] = open_ranks();
  const auto held = allocate_step(*first, 7.0);
  auto ended = std::async(std::launch::async, [&] { return first->end_step(); });
  ASSERT_OK(second->close());
  EXPECT_EQ(ended.get().error().code, ErrorCode::invalid_argument);
  ASSERT_OK(first->abort_step());
  ASSERT_OK(first->close());
  EXPECT_TRUE(is_still(held, 7.0));

  // The next group's step of this number has nothing to do with it.
  WriterOptions options;
  options.mode = WriteMode::append;
  options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  auto next = open_writer(options);
  for (int step = 0; step < 6; ++step) write_step(*next, large_elements, 1.0);
  EXPECT_TRUE(is_still(held, 7.0));
  auto admin = Admin::connect();
  ASSERT_OK(admin);
  auto steps = (*admin)->steps(*parse_address("res/flow"));
  ASSERT_OK(steps);
  ASSERT_EQ(steps->size(), 1U);
  EXPECT_EQ(steps->front().pins, 0U);
}

TEST_F(HeldMemory, outlasts_its_writer) {
  auto writer = open_writer();
  const auto held = allocate_step(*writer, 7.0);
  ASSERT_OK(writer->end_step());
  ASSERT_OK(writer->close());
  writer.reset();
  WriterOptions options;
  options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
  auto next = open_writer(options);
  for (int step = 0; step < 6; ++step) write_step(*next, large_elements, 1.0);
  EXPECT_TRUE(is_still(held, 7.0));
}

}  // namespace
}  // namespace forebay::testing
