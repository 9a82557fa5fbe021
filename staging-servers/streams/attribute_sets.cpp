// SPDX-License-Identifier: Apache-2.0
#include "streams/attribute_sets.h"

#include <algorithm>
#include <iterator>

#include "storage/record_check.h"

namespace forebay::server {
namespace {

std::uint64_t bytes_of(const journal::AttributeSetT& set) {
  std::uint64_t bytes = 0;
  for (const journal::Extent& extent : set.extents) bytes += extent.length();
  return bytes;
}

void append(const std::vector<journal::Extent>& from, std::vector<Extent>& extents) {
  for (const journal::Extent& extent : from) extents.push_back({extent.segment(), extent.offset(), extent.length()});
}

}  // namespace

AttributeSets::Place AttributeSets::place_of(const journal::AttributeSetT& set) {
  return {set.extents.front().segment(), set.extents.front().offset()};
}

bool AttributeSets::contains(const journal::AttributeSetT& set) const {
  const auto found = sets_.find(place_of(set));
  return found != sets_.end() && storage::is_same_set(found->second.set, set);
}

void AttributeSets::add(const journal::AttributeSetT& set) {
  const auto [found, is_new] = sets_.try_emplace(place_of(set));
  if (is_new) {
    found->second.set = set;
    bytes_ += bytes_of(set);
  }
  ++found->second.users;
}

bool AttributeSets::remove(const journal::AttributeSetT& set) {
  const auto found = sets_.find(place_of(set));
  if (found == sets_.end() || --found->second.users > 0) return false;
  bytes_ -= bytes_of(set);
  sets_.erase(found);
  return true;
}

std::vector<Extent> AttributeSets::extents() const {
  return extents_from(0);
}

std::vector<Extent> AttributeSets::extents_from(std::uint64_t first) const {
  std::vector<Extent> extents;
  for (const auto& [place, entry] : sets_) {
    if (entry.set.step >= first) append(entry.set.extents, extents);
  }
  return extents;
}

std::vector<Extent> extents_of(const journal::AttributeSetT& set) {
  std::vector<Extent> extents;
  append(set.extents, extents);
  return extents;
}

std::vector<Extent> extents_of(const journal::StepCommittedT& step) {
  std::vector<Extent> extents;
  for (const auto& part : step.parts) append(part->extents, extents);
  return extents;
}

std::vector<Extent> extents_read(const journal::StepCommittedT& step) {
  std::vector<Extent> extents = extents_of(step);
  for (const auto* set : sets_of(step)) append(set->extents, extents);
  return extents;
}

std::vector<const journal::AttributeSetT*> sets_of(const journal::StepCommittedT& step) {
  std::vector<const journal::AttributeSetT*> sets;
  for (const auto& part : step.parts) {
    if (part->attributes) sets.push_back(part->attributes.get());
  }
  return sets;
}

}  // namespace forebay::server
