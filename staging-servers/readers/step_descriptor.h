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

/// Who might map the step.
struct MappingReader {
  bool holds = false;    ///< the step: it stays until it is let go
  bool is_here = false;  ///< on this server's node
  uid_t user = 0;
};

DescribedStep describe(Segments& segments, const journal::StepCommittedT& step, const MappingReader& reader);

}  // namespace forebay::server
