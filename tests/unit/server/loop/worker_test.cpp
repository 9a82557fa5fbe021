// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/loop/worker.h"

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

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

/// Jobs of a user that wait until they are let go.
class Walks {
 public:
  Walks(Worker& worker, uid_t user, int count, std::shared_ptr<const bool> wanted) : wanted_(std::move(wanted)) {
    for (int i = 0; i < count; ++i) {
      worker.add_for(user, wanted_, [this] {
        ++begun;
        let_go.wait();
        ++done;
      });
    }
  }
  /// Nobody waits for them any more.
  void leave() { wanted_.reset(); }

  std::atomic<int> begun = 0;
  std::atomic<int> done = 0;
  std::latch let_go{1};

 private:
  std::shared_ptr<const bool> wanted_;
};

TEST(Worker, what_one_user_asks_for_leaves_threads_to_others_and_to_the_server) {
  Worker worker(4);
  const auto wanted = std::make_shared<const bool>(true);
  Walks many(worker, 1001, 100, wanted);
  while (many.begun < 2) std::this_thread::yield();
  std::latch others(2);
  EXPECT_TRUE(worker.add_for(1002, wanted, [&] { others.count_down(); }));
  worker.add([&] { others.count_down(); });
  others.wait();
  EXPECT_EQ(many.begun, 2);
  many.let_go.count_down();
  worker.finish();
  EXPECT_EQ(many.done, 100);
}

TEST(Worker, one_user_alone_has_all_threads_but_those_that_are_kept) {
  Worker worker(8);
  const auto wanted = std::make_shared<const bool>(true);
  Walks many(worker, 1001, 100, wanted);
  while (many.begun < 6) std::this_thread::yield();
  std::latch other(1);
  worker.add_for(1002, [&] { other.count_down(); });
  other.wait();
  EXPECT_EQ(many.begun, 6);
  many.let_go.count_down();
  worker.finish();
}

TEST(Worker, what_must_run_in_any_case_is_never_refused) {
  Worker worker(1);
  std::latch begin(1);
  worker.add([&] { begin.wait(); });
  std::size_t done = 0;
  for (std::size_t i = 0; i <= Worker::waiting_of_user_max; ++i) worker.add_for(1001, [&] { ++done; });
  begin.count_down();
  worker.end();
  EXPECT_EQ(done, Worker::waiting_of_user_max + 1);
}

TEST(Worker, turns_go_round_by_user) {
  Worker worker(1);
  std::latch begin(1);
  worker.add([&] { begin.wait(); });
  const auto wanted = std::make_shared<const bool>(true);
  std::vector<uid_t> order;
  for (int i = 0; i < 3; ++i) worker.add_for(1001, wanted, [&] { order.push_back(1001); });
  for (int i = 0; i < 2; ++i) worker.add_for(1002, wanted, [&] { order.push_back(1002); });
  worker.add_for(1003, wanted, [&] { order.push_back(1003); });
  begin.count_down();
  worker.finish();
  EXPECT_EQ(order, (std::vector<uid_t>{1001, 1002, 1003, 1001, 1002, 1001}));
}

TEST(Worker, does_nothing_for_who_has_left) {
  Worker worker(1);
  std::latch begin(1);
  worker.add([&] { begin.wait(); });
  Walks left(worker, 1001, 50, std::make_shared<const bool>(true));
  left.leave();
  int done = 0;
  const auto wanted = std::make_shared<const bool>(true);
  worker.add_for(1001, wanted, [&] { ++done; });
  begin.count_down();
  worker.finish();
  EXPECT_EQ(left.begun, 0);
  EXPECT_EQ(done, 1);
}

TEST(Worker, takes_a_bounded_number_of_one_users_jobs) {
  Worker worker(1);
  std::latch begin(1);
  worker.add([&] { begin.wait(); });
  const auto wanted = std::make_shared<const bool>(true);
  for (std::size_t i = 0; i < Worker::waiting_of_user_max; ++i) ASSERT_TRUE(worker.add_for(1001, wanted, [] {}));
  EXPECT_FALSE(worker.add_for(1001, wanted, [] {}));
  EXPECT_TRUE(worker.add_for(1002, wanted, [] {}));
  begin.count_down();
}

}  // namespace
}  // namespace forebay::server
