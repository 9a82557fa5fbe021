// SPDX-License-Identifier: Apache-2.0
#include "staging-servers/space/reader_presence.h"

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/no_descriptors.h"
#include "tests/support/temporary_directory.h"

namespace forebay::testing {
namespace {

using server::ReaderPresence;
using server::ReaderProcess;

pid_t ended_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
  return pid;
}

TEST(ReaderPresence, is_what_the_lock_says) {
  const TemporaryDirectory directory;
  auto presence = ReaderPresence::open(directory.path());
  ASSERT_TRUE(presence);
  Descriptor held = presence->admit(7);
  ASSERT_TRUE(held.valid());
  EXPECT_EQ(presence->state(7), ReaderPresence::State::present);
  held.reset();
  EXPECT_EQ(presence->state(7), ReaderPresence::State::gone);
  presence->forget(7);
  EXPECT_EQ(presence->state(7), ReaderPresence::State::unknown);
}

// crash-matrix: holding steps | server without descriptors, when it looks whether a reader of before its start is there | the reader is taken to be there, and keeps its steps
TEST(ReaderPresence, who_cannot_be_looked_at_is_there) {
  const TemporaryDirectory directory;
  auto presence = ReaderPresence::open(directory.path());
  ASSERT_TRUE(presence);
  ASSERT_TRUE(presence->admit(7).valid());
  {
    const NoDescriptors none;
    EXPECT_EQ(presence->state(7), ReaderPresence::State::present);
    EXPECT_FALSE(ReaderProcess(::getpid()).has_ended());
  }
  EXPECT_EQ(presence->state(7), ReaderPresence::State::gone);
  EXPECT_FALSE(ReaderProcess(::getpid()).has_ended());
  EXPECT_TRUE(ReaderProcess(ended_process()).has_ended());
}

}  // namespace
}  // namespace forebay::testing
