// SPDX-License-Identifier: Apache-2.0
// The attribute sets of a stream that take space, and how many use each: steps that are kept, withdrawn steps that
// readers hold, and the rank whose last step referred to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <forebay/storage/journal_generated.h>

#include "space/space_map.h"

namespace forebay::server {

class AttributeSets {
 public:
  /// The same set, in the same place?
  bool contains(const journal::AttributeSetT& set) const;
  /// One more uses the set. No other set may lie in its space.
  void add(const journal::AttributeSetT& set);
  /// One less does. True if that was the last: its space is free.
  bool remove(const journal::AttributeSetT& set);

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::vector<Extent> extents() const;
  /// Of the sets that a step from `first` on has brought.
  std::vector<Extent> extents_from(std::uint64_t first) const;

 private:
  struct Entry {
    journal::AttributeSetT set;
    std::size_t users = 0;
  };
  using Place = std::pair<std::uint32_t, std::uint64_t>;  ///< segment and offset of the first extent
  static Place place_of(const journal::AttributeSetT& set);

  std::map<Place, Entry> sets_;
  std::uint64_t bytes_ = 0;
};

/// The space of a set.
std::vector<Extent> extents_of(const journal::AttributeSetT& set);
/// The space that is a step's own: without its attribute sets, which others may use.
std::vector<Extent> extents_of(const journal::StepCommittedT& step);
/// All space that a reader of the step reads.
std::vector<Extent> extents_read(const journal::StepCommittedT& step);
/// The sets that the parts of a step refer to.
std::vector<const journal::AttributeSetT*> sets_of(const journal::StepCommittedT& step);

}  // namespace forebay::server
