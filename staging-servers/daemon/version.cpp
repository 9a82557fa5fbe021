// SPDX-License-Identifier: Apache-2.0
#include "daemon/version.h"

namespace forebay::server {

const char* const version_text = FOREBAY_VERSION;

}  // namespace forebay::server
