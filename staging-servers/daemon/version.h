// SPDX-License-Identifier: Apache-2.0
// The version that the server reports.
#pragma once

namespace forebay::server {

/// As in pyproject.toml, from where CMake takes it.
extern const char* const version_text;

}  // namespace forebay::server
