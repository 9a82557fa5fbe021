// SPDX-License-Identifier: Apache-2.0
// Reads a step's metadata and blocks from the segments and compares them with their checksums.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "base/segment_layout.h"
#include "space/metadata_reads.h"

namespace forebay::server {

struct StepCheck {
  std::uint64_t blocks = 0;
  std::uint64_t blocks_without_checksum = 0;
  std::uint64_t blocks_elsewhere = 0;  ///< with a part on another member, which was not read
  /// Global arrays whose blocks overlap or leave elements out: name, and what is wrong.
  std::map<std::string, std::string> gaps;
  std::string disagreement;  ///< on a variable that ranks wrote differently, so that it cannot be read; empty: none
};

/// Attribute sets of one stream that were found whole, by epoch, step and rank: each is read once for all steps.
using CheckedSets = std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>>;

/// corrupt names variable, block and place of the first mismatch.
Result<StepCheck> check_step(const journal::StepCommittedT& step, const SegmentLayout& layout,
                             std::uint64_t segment_bytes, const SegmentOpener& open, CheckedSets& sets);

}  // namespace forebay::server
