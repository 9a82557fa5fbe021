// SPDX-License-Identifier: Apache-2.0
// For readers on other nodes: a small step's bytes travel with its description, of a large one the metadata.
#pragma once

#include <forebay/protocol/messages_generated.h>
#include <forebay/storage/journal_generated.h>

#include "space/segments.h"

namespace forebay::server {

/// Puts all bytes of a small step into its description, or a large one's metadata. Nothing happens if that is too much
/// as well, or if it would have to be waited for: then the reader asks for the bytes by its data path.
void carry(const Segments& segments, const journal::StepCommittedT& step, wire::StepDescriptorT& description);

}  // namespace forebay::server
