// SPDX-License-Identifier: Apache-2.0
// Ranks on other nodes: what they may write is what they are granted just now. Nothing happens for ranks of this node,
// which hold descriptors.
#pragma once

#include <vector>

#include "space/segments.h"
#include "writers/incarnation.h"

namespace forebay::server {

/// Opens the files of newly granted extents for a rank, and lets it write there.
void open_window(WriterRank& rank, const Segments& segments, const std::vector<Extent>& extents);
/// After the rank's granted space has changed. False if the rank is writing outside of it.
bool follow_grants(const WriterRank& rank);

}  // namespace forebay::server
