// SPDX-License-Identifier: Apache-2.0
// Reads a step's metadata and blocks from the segments of its home and compares them with their checksums. Of blocks
// with parts on other members it says what is to be compared there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "base/segment_layout.h"
#include "space/metadata_reads.h"
#include "space/space_map.h"

namespace forebay::server {

/// A block with a part on another member than the home.
struct BlockElsewhere {
  struct Piece {
    std::uint16_t member = 0;
    Extent extent;
    std::optional<std::uint32_t> checksum;  ///< of a piece on the home, which was read; of others once they were asked
    bool unreadable = false;                ///< its member has said so
  };
  std::string where;  ///< step, rank, variable and block, for people
  std::optional<std::uint32_t> checksum;
  std::vector<Piece> pieces;

  bool lies_on(std::uint16_t member) const;
};

struct StepCheck {
  std::uint64_t blocks = 0;
  std::uint64_t blocks_without_checksum = 0;  ///< but for those elsewhere
  std::vector<BlockElsewhere> elsewhere;
  /// Global arrays whose blocks overlap or leave elements out: name, and what is wrong.
  std::map<std::string, std::string> gaps;
  std::string disagreement;  ///< on a variable that ranks wrote differently, so that it cannot be read; empty: none
};

/// Attribute sets of one stream that were found whole, by epoch, step and rank: each is read once for all steps.
using CheckedSets = std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>>;

/// What is read of a step's blocks.
enum class BlocksRead : std::uint8_t {
  home,       ///< those that lie there whole; nothing of others
  all,        ///< those, and what lies there of others
  elsewhere,  ///< only what lies there of others
};

/// corrupt names variable, block and place of the first mismatch.
Result<StepCheck> check_step(const journal::StepCommittedT& step, const SegmentLayout& layout,
                             std::uint64_t segment_bytes, const SegmentOpener& open, CheckedSets& sets,
                             BlocksRead blocks);

}  // namespace forebay::server
