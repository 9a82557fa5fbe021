// SPDX-License-Identifier: Apache-2.0
#include "readers/step_descriptor.h"

#include <utility>

namespace forebay::server {
namespace {

wire::AttributeSetT to_wire(const journal::AttributeSetT& set) {
  wire::AttributeSetT told;
  told.step = set.step;
  for (const journal::Extent& extent : set.extents)
    told.extents.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
  told.bytes = set.bytes;
  told.crc = set.crc;
  return told;
}

}  // namespace

std::unique_ptr<wire::PartReferenceT> reference_of(const journal::PartT& part) {
  auto reference = std::make_unique<wire::PartReferenceT>();
  reference->rank = part.rank;
  reference->metadata_bytes = part.metadata_bytes;
  reference->metadata_crc = part.metadata_crc;
  for (const auto& extent : part.metadata)
    reference->metadata.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
  if (part.attributes) reference->attributes = std::make_unique<wire::AttributeSetT>(to_wire(*part.attributes));
  return reference;
}

DescribedStep describe(Segments& segments, const journal::StepCommittedT& step, const MappingReader& reader) {
  DescribedStep described;
  described.descriptor = std::make_unique<wire::StepDescriptorT>();
  bool may_map = reader.holds;
  for (const auto& part : step.parts) {
    if (part->attributes)
      for (const auto& extent : part->attributes->extents) described.segments.push_back(extent.segment());
    for (const auto& extent : part->extents) {
      const bool own = segments.is_own(extent.segment());
      if (own) described.segments.push_back(extent.segment());
      // What lies here is mapped by nobody elsewhere, so it does not matter who may truncate it.
      const bool matters = reader.holds && (reader.is_here ? may_map || !own : !own);
      // Of other members all are asked for: what is not known yet is known for a later step.
      if (matters && !segments.may_map(extent.segment(), reader.user)) may_map = false;
    }
    described.descriptor->parts.push_back(reference_of(*part));
  }
  described.descriptor->may_map = may_map;
  return described;
}

}  // namespace forebay::server
