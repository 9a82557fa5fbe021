// SPDX-License-Identifier: Apache-2.0
// Reads a step's metadata and blocks from the segments and compares them with their checksums.
#pragma once

#include <functional>
#include <memory>

#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "base/device.h"
#include "base/segment_layout.h"

namespace forebay::server {

/// Opens a segment for reading. Called once for each segment of a step.
using SegmentOpener = std::function<Result<std::unique_ptr<File>>(std::uint32_t segment)>;

struct StepCheck {
  std::uint64_t blocks = 0;
  std::uint64_t blocks_without_checksum = 0;
};

/// corrupt names variable, block and place of the first mismatch.
Result<StepCheck> check_step(const journal::StepCommittedT& step, const SegmentLayout& layout,
                             std::uint64_t segment_bytes, const SegmentOpener& open);

}  // namespace forebay::server
