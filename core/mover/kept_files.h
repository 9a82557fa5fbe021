// SPDX-License-Identifier: Apache-2.0
// Files that the target has already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <forebay/result.h>

#include "mover/source_file.h"
#include "mover/work.h"

namespace forebay::mover {

/// The checksum of both if an open file of the target has the source's size and content; nothing if not. Both are read.
Result<std::optional<std::uint32_t>> same_content(Work& work, const SourceFile& source, int target,
                                                  const std::string& shown);

/// The error for bytes that storage lost.
tl::unexpected<Error> reads_differently(const std::string& name);

}  // namespace forebay::mover
