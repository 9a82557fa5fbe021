// SPDX-License-Identifier: Apache-2.0
// The space that a rank has been granted and has not written a part to yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include <forebay/protocol/messages_generated.h>
#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "base/segment_layout.h"
#include "space/space_map.h"

namespace forebay::server {

/// The number that the step of this part gets.
std::uint64_t number_of(const wire::PartT& part);

class GrantedSpace {
 public:
  void add(const Extent& extent);
  void add(const std::vector<Extent>& extents);
  /// What a part had taken comes back.
  void add(const std::vector<journal::Extent>& extents);

  std::uint64_t total() const;
  bool any_in(std::uint32_t segment) const;

  /// Takes the space of a part that a client has sent, and that of an attribute set that it brings, and describes the
  /// part for the journal. `held`: the set that the rank's last step refers to, or null. protocol, and nothing is
  /// taken, if the part names space that is not here, a member that does not have it, metadata or carried bytes outside
  /// its space, or a set that it neither brings nor holds.
  Result<journal::PartT> take(const SpaceMap& map, const SegmentLayout& layout, std::uint32_t rank,
                              const wire::PartT& part, const journal::AttributeSetT* held);
  std::vector<Extent> take_all();
  /// What lies in such segments.
  std::vector<Extent> take_if(const std::function<bool(std::uint32_t segment)>& is_wanted);
  std::vector<Extent> all() const;

 private:
  std::map<std::uint32_t, RangeSet> segments_;
};

}  // namespace forebay::server
