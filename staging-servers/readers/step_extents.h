// SPDX-License-Identifier: Apache-2.0
// Which bytes of segments a reader of a step may ask for.
#pragma once

#include <span>

#include <forebay/protocol/messages_generated.h>
#include <forebay/storage/journal_generated.h>

namespace forebay::server {

/// All that is asked for lies in the step's space, or in attribute sets that it refers to; perhaps in several extents
/// that lie one behind another. One pass over the step: it may have a hundred thousand extents, and a request
/// thousands.
bool lie_in(const journal::StepCommittedT& step, std::span<const wire::Extent> asked);

}  // namespace forebay::server
