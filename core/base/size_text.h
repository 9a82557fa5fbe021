// SPDX-License-Identifier: Apache-2.0
// Sizes as people read them, for the texts of errors.
#pragma once

#include <cstdint>
#include <string>

namespace forebay {

/// The largest binary unit that leaves at least 1, with up to two decimals: "1.5 GiB". As forebay.format_size in
/// Python.
std::string size_text(std::uint64_t size_bytes);

}  // namespace forebay
