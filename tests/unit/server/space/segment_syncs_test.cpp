// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/space/segment_syncs.h"

#include <future>

#include <gtest/gtest.h>

#include "tests/support/faulty_device.h"
#include "tests/support/temporary_directory.h"

namespace forebay::server {
namespace {

class SegmentSyncsTest : public ::testing::Test {
 protected:
  SegmentSyncs::Paths segments(const std::vector<std::uint32_t>& numbers) {
    SegmentSyncs::Paths paths;
    for (const std::uint32_t number : numbers) {
      const std::string path = directory_.path(std::to_string(number));
      (void)disk_.open(path, OpenMode::create_new);
      paths.emplace_back(number, path);
    }
    return paths;
  }

  testing::TemporaryDirectory directory_;
  testing::TemporaryDirectory limbo_;
  testing::FaultyDevice disk_{limbo_.path()};
  SegmentSyncs syncs_{disk_};
};

TEST_F(SegmentSyncsTest, a_sync_after_one_that_failed_fails) {
  const auto paths = segments({3, 5, 7});
  disk_.fail_at(testing::Operation::sync, 2);
  const auto failure = syncs_.sync(paths);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->segment, 5U);
  EXPECT_TRUE(failure->begun);
  const auto again = syncs_.sync(paths);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->segment, 5U);
  EXPECT_TRUE(again->begun);
  EXPECT_FALSE(syncs_.sync(segments({3, 7})));
}

TEST_F(SegmentSyncsTest, one_that_cannot_begin_says_nothing_of_the_next) {
  const auto paths = segments({3});
  disk_.fail_at(testing::Operation::open, 1, ErrorCode::busy);
  const auto failure = syncs_.sync(paths);
  ASSERT_TRUE(failure);
  EXPECT_FALSE(failure->begun);
  EXPECT_FALSE(syncs_.sync(paths));
}

TEST_F(SegmentSyncsTest, a_failure_is_told_to_those_that_came_while_it_ran) {
  const auto paths = segments({3});
  disk_.set_syncs_held(true);
  disk_.fail_at(testing::Operation::sync, 1);
  auto one = std::async(std::launch::async, [&] { return syncs_.sync(paths); });
  disk_.await_held_sync();
  auto other = std::async(std::launch::async, [&] { return syncs_.sync(paths); });
  disk_.set_syncs_held(false);
  EXPECT_TRUE(one.get());
  EXPECT_TRUE(other.get());
}

}  // namespace
}  // namespace forebay::server
