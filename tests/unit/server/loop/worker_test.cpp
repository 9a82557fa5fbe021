// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/loop/worker.h"

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

}  // namespace
}  // namespace forebay::server
