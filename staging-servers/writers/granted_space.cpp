// SPDX-License-Identifier: Apache-2.0
#include "writers/granted_space.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bounds.h"
#include "base/invariant.h"
#include "base/return_error.h"
#include "storage/record_check.h"

namespace forebay::server {

std::uint64_t number_of(const wire::PartT& part) {
  return part.number.value_or(part.step);
}

void GrantedSpace::add(const Extent& extent) {
  const bool is_new = segments_[extent.segment].insert(extent.offset, extent.length);
  invariant(is_new, "space is granted twice to a rank");
}

void GrantedSpace::add(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) add(extent);
}

void GrantedSpace::add(const std::vector<journal::Extent>& extents) {
  for (const journal::Extent& extent : extents) add(Extent{extent.segment(), extent.offset(), extent.length()});
}

std::uint64_t GrantedSpace::total() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, ranges] : segments_) bytes += ranges.total();
  return bytes;
}

bool GrantedSpace::any_in(std::uint32_t segment) const {
  const auto found = segments_.find(segment);
  return found != segments_.end() && found->second.total() > 0;
}

Result<journal::PartT> GrantedSpace::take(const SpaceMap& map, const SegmentLayout& layout, std::uint32_t rank,
                                          const wire::PartT& part, const journal::AttributeSetT* held) {
  const auto refuse = [](const char* what) { return fail(ErrorCode::protocol, what); };
  // Work on a copy: a part that is refused changes nothing.
  auto left = segments_;
  journal::PartT checked;
  const auto take_from_left = [&](const std::vector<wire::Extent>& extents, std::vector<journal::Extent>& taken,
                                  std::map<std::uint32_t, RangeSet>& used) -> Result<void> {
    for (const wire::Extent& extent : extents) {
      const Extent plain{extent.segment(), extent.offset(), extent.length()};
      if (!map.is_valid(plain)) return refuse("the part names space that does not exist");
      if (layout.member_of(plain.segment) != extent.member())
        return refuse("the part names a member of the reservation that does not have the segment");
      const auto found = left.find(plain.segment);
      if (found == left.end() || !found->second.erase(plain.offset, plain.length))
        return refuse("the part names space that was not granted to this rank");
      used[plain.segment].insert(plain.offset, plain.length);
      taken.emplace_back(plain.segment, extent.member(), 0, plain.offset, plain.length);
    }
    return {};
  };
  std::map<std::uint32_t, RangeSet> used, used_by_set;
  RETURN_IF_ERROR(take_from_left(part.extents, checked.extents, used));
  if (part.attributes) {
    checked.attributes = std::make_unique<journal::AttributeSetT>();
    journal::AttributeSetT& set = *checked.attributes;
    set.step = part.attributes->step;
    set.bytes = part.attributes->bytes;
    set.crc = part.attributes->crc;
    const std::uint64_t number = number_of(part);
    if (set.step == number) {
      RETURN_IF_ERROR(take_from_left(part.attributes->extents, set.extents, used_by_set));
      if (!storage::check_attribute_set(set, number))
        return refuse("the size of the part's attribute set does not fit to its space");
    } else {
      for (const wire::Extent& extent : part.attributes->extents)
        set.extents.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
      if (held == nullptr || !storage::is_same_set(*held, set))
        return refuse("the part refers to an attribute set that this rank does not hold");
    }
  }
  const auto lies_in = [&](const std::map<std::uint32_t, RangeSet>& space, const wire::Extent& extent) {
    const auto found = space.find(extent.segment());
    return extent.length() > 0 && checked_add(extent.offset(), extent.length()) && found != space.end() &&
           found->second.contains(extent.offset(), extent.length()) &&
           layout.member_of(extent.segment()) == extent.member();
  };
  const auto may_carry = [&](const wire::Extent& extent) {
    return lies_in(used, extent) || lies_in(used_by_set, extent);
  };
  if (!std::ranges::all_of(part.carried, may_carry))
    return refuse("the part carries bytes for places outside its space");
  std::map<std::uint32_t, RangeSet> metadata;
  std::uint64_t metadata_bytes = 0;
  for (const wire::Extent& extent : part.metadata) {
    // Once: else there would be more of it than there is space.
    if (!lies_in(used, extent) || !metadata[extent.segment()].insert(extent.offset(), extent.length()))
      return refuse("the part's metadata lies outside its space, or twice in one place");
    metadata_bytes += extent.length();
    checked.metadata.emplace_back(extent.segment(), extent.member(), 0, extent.offset(), extent.length());
  }
  if (metadata_bytes != part.metadata_bytes || metadata_bytes == 0)
    return refuse("the lengths of the part's metadata do not agree");
  checked.rank = rank;
  checked.metadata_bytes = part.metadata_bytes;
  checked.metadata_crc = part.metadata_crc;
  segments_ = std::move(left);
  return checked;
}

std::vector<Extent> GrantedSpace::take_all() {
  auto extents = all();
  segments_.clear();
  return extents;
}

std::vector<Extent> GrantedSpace::take_if(const std::function<bool(std::uint32_t segment)>& is_wanted) {
  std::vector<Extent> extents;
  for (const Extent& extent : all())
    if (is_wanted(extent.segment)) extents.push_back(extent);
  std::erase_if(segments_, [&](const auto& entry) { return is_wanted(entry.first); });
  return extents;
}

std::vector<Extent> GrantedSpace::all() const {
  std::vector<Extent> extents;
  for (const auto& [segment, ranges] : segments_) {
    for (const auto& [offset, length] : ranges.ranges()) extents.push_back({segment, offset, length});
  }
  return extents;
}

}  // namespace forebay::server
