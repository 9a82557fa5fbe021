// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/loop/worker.h"

#include <atomic>
#include <latch>

#include <gtest/gtest.h>

namespace forebay::server {
namespace {

TEST(Worker, finishes_what_was_added_and_takes_no_more_once_it_has_ended) {
  Worker worker;
  int done = 0;
  for (int i = 0; i < 10; ++i) worker.add([&] { ++done; });
  worker.end();
  EXPECT_EQ(done, 10);
  worker.add([&] { ++done; });
  worker.end();
  EXPECT_EQ(done, 10);
}

TEST(Worker, with_several_threads_a_slow_job_keeps_no_other_waiting) {
  Worker worker(2);
  std::latch let_go(1);
  std::latch passed(1);
  std::atomic<int> done = 0;
  worker.add([&] {
    let_go.wait();
    ++done;
  });
  worker.add([&] {
    ++done;
    passed.count_down();
  });
  passed.wait();
  EXPECT_EQ(done, 1);
  let_go.count_down();
  worker.finish();
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace forebay::server
