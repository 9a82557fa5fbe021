// SPDX-License-Identifier: Apache-2.0
#include "fabric/kept_signals.h"

#include <gtest/gtest.h>

namespace forebay::fabric {
namespace {

void ours(int) {}
void theirs(int) {}

TEST(KeptSignals, a_handler_that_a_library_replaces_comes_back) {
  const auto before = std::signal(SIGUSR1, ours);
  {
    const KeptSignals kept;
    std::signal(SIGUSR1, theirs);
    std::signal(SIGUSR2, theirs);
  }
  EXPECT_EQ(std::signal(SIGUSR1, before), ours);
  EXPECT_EQ(std::signal(SIGUSR2, SIG_DFL), SIG_DFL);
}

}  // namespace
}  // namespace forebay::fabric
