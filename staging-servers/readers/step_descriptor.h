// SPDX-License-Identifier: Apache-2.0
// A step as a reader is told of it: where its metadata lies, and what the reader may do with its bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/storage/journal_generated.h>

#include "space/segments.h"

namespace forebay::server {

struct DescribedStep {
  std::unique_ptr<wire::StepDescriptorT> descriptor;  ///< without its summary
  std::vector<std::uint32_t> segments;                ///< those on this server that it lies in, some more than once
};

/// Where a rank's metadata lies.
std::unique_ptr<wire::PartReferenceT> reference_of(const journal::PartT& part);

/// `may_map`: for a reader of this user on this node who holds the step, as far as others let it.
DescribedStep describe(Segments& segments, const journal::StepCommittedT& step, bool may_map, uid_t user);

}  // namespace forebay::server
