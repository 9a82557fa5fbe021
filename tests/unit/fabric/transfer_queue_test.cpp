// SPDX-License-Identifier: Apache-2.0
// Requests for bytes that wait for a data path's thread.
#include "fabric/transfer_queue.h"

#include <memory>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace forebay::fabric {
namespace {

TEST(TransferQueue, keeps_no_file_of_a_path_that_has_ended) {
  const forebay::testing::TemporaryDirectory directory;
  auto opened = posix_device().open(directory.path("file"), OpenMode::create_new);
  ASSERT_TRUE(opened);
  const std::shared_ptr<const File> file = std::move(*opened);
  TransferQueue queue;
  EXPECT_TRUE(queue.add({{1, {{file, 0, 1}}}, {}}));
  EXPECT_EQ(file.use_count(), 2);
  queue.close();
  EXPECT_EQ(file.use_count(), 1);
  // One that comes late is not sent, and its client is no worse for it.
  EXPECT_TRUE(queue.add({{2, {{file, 0, 1}}}, {}}));
  EXPECT_EQ(file.use_count(), 1);
  EXPECT_FALSE(queue.try_take());
}

}  // namespace
}  // namespace forebay::fabric
