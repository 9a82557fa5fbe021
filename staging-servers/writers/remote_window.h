// SPDX-License-Identifier: Apache-2.0
// Ranks on other nodes: what they may write is what they are granted just now. Nothing happens for ranks of this node,
// which hold descriptors.
#pragma once

#include <span>
#include <vector>

#include "protocol/carried_bytes.h"
#include "space/segments.h"
#include "writers/incarnation.h"

namespace forebay::server {

/// Opens the files of newly granted extents for a rank, and lets it write there.
void open_window(WriterRank& rank, const Segments& segments, const std::vector<Extent>& extents);
/// Writes what a part carries; its places have been checked.
Result<void> write_carried(const Segments& segments, std::span<const protocol::CarriedPiece> pieces);
/// After the rank's granted space has changed. False if the rank is writing outside of it.
bool follow_grants(const WriterRank& rank);

}  // namespace forebay::server
