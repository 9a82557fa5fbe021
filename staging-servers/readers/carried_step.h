// SPDX-License-Identifier: Apache-2.0
// Small steps for readers on other nodes: their bytes travel with their description.
#pragma once

#include <forebay/protocol/messages_generated.h>
#include <forebay/storage/journal_generated.h>

#include "space/segments.h"

namespace forebay::server {

/// Puts all bytes of a small step into its description. Nothing happens if the step is large, or if its bytes would
/// have to be waited for: then the reader asks for them by its data path.
void carry(const Segments& segments, const journal::StepCommittedT& step, wire::StepDescriptorT& description);

}  // namespace forebay::server
