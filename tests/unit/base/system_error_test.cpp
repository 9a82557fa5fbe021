// SPDX-License-Identifier: Apache-2.0
#include "base/system_error.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace forebay {
namespace {

TEST(SystemError, tells_a_disk_that_takes_no_writes_from_missing_rights) {
  EXPECT_EQ(system_error(EROFS, "cannot open a segment").value().code, ErrorCode::io_error);
  EXPECT_EQ(system_error(EIO, "cannot open a segment").value().code, ErrorCode::io_error);
  EXPECT_EQ(system_error(EACCES, "cannot open a segment").value().code, ErrorCode::permission_denied);
}

}  // namespace
}  // namespace forebay
