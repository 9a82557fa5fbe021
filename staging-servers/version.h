// SPDX-License-Identifier: Apache-2.0
// The version that the server reports.
#pragma once

namespace forebay::server {

inline constexpr const char* version_text = "0.1.0";

}  // namespace forebay::server
