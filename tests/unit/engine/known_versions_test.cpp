// SPDX-License-Identifier: Apache-2.0
#include "known_versions.h"

#include <gtest/gtest.h>

namespace {

TEST(KnownVersions, are_those_that_were_tried_with_any_packagers_number) {
  EXPECT_TRUE(forebay_knows_adios2("2.12.1"));
  EXPECT_TRUE(forebay_knows_adios2("2.12.1.1001"));
  for (const char* other : {"2.12.10", "2.12.0", "2.13.1", "2.12.1-rc1", "2.12", "", "12.12.1"})
    EXPECT_FALSE(forebay_knows_adios2(other)) << other;
}

}  // namespace
