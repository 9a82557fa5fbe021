// SPDX-License-Identifier: Apache-2.0
// The group of two ranks: what both must call at once is called from two threads.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/client/faults/programs.h"

namespace forebay::testing {

std::vector<std::unique_ptr<Writer>> Programs::open_ranks(const Address& address, WriterOptions options) {
  std::vector<std::unique_ptr<Writer>> writers;
  if (address.stream != group_stream) {
    if (auto writer = Writer::open(address, options); succeeded(writer)) writers.push_back(std::move(*writer));
    return writers;
  }
  // A rank that is refused ends the other's wait for it, as a launcher does.
  const auto refused = std::make_shared<std::atomic<bool>>(false);
  options.interrupt = [patience = end_of_patience(), refused] { return *refused || patience(); };
  options.ranks = 2;
  const auto open_rank = [&](std::uint32_t rank) {
    WriterOptions own = options;
    own.rank = rank;
    auto writer = Writer::open(address, own);
    if (!writer) *refused = true;
    return writer;
  };
  auto other = std::async(std::launch::async, open_rank, 1);
  auto first = open_rank(0);
  auto second = other.get();
  if (first && second) {
    writers.push_back(std::move(*first));
    writers.push_back(std::move(*second));
  } else {
    const bool second_was_first = first || first.error().code == ErrorCode::cancelled;
    (void)succeeded(second_was_first ? second : first);
  }
  return writers;
}

bool Programs::end_two(std::vector<std::unique_ptr<Writer>>& writers) {
  // A rank that fails by itself leaves; else the other would wait for it for ever.
  const auto end = [](std::unique_ptr<Writer>& writer) {
    auto ended = writer->end_step();
    if (!ended) writer.reset();
    return ended;
  };
  const std::uint64_t before = server_.disk().operations();
  auto other = std::async(std::launch::async, [&] { return end(writers.back()); });
  const auto is_over = [&] { return other.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
  // The second rank writes first, so that operations have one order.
  while (server_.disk().operations() == before && !is_over()) std::this_thread::yield();
  if (is_over()) return succeeded(other.get());
  const auto ended = end(writers.front());
  const auto other_ended = other.get();
  if (ended) {
    EXPECT_TRUE(other_ended) << other_ended.error().message();
    return true;
  }
  const bool was_left = !other_ended && ended.error().code == ErrorCode::group_broken;
  return succeeded(was_left ? other_ended : ended);
}

}  // namespace forebay::testing
