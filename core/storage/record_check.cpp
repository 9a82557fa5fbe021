// SPDX-License-Identifier: Apache-2.0
#include "storage/record_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include <forebay/address.h>

#include "base/bounds.h"

namespace forebay::storage {
namespace {

tl::unexpected<Error> bad_step(const journal::StepCommittedT& record, const std::string& what) {
  return fail(ErrorCode::corrupt, "step " + std::to_string(record.step) + ": " + what);
}

/// Sum of the extents' lengths, or nothing if one is empty, has no end or does not fit to `unit`.
std::optional<std::uint64_t> extents_bytes(const std::vector<journal::Extent>& extents, std::uint64_t unit) {
  std::uint64_t total = 0;
  for (const journal::Extent& extent : extents) {
    if (extent.length() == 0 || extent.offset() % unit != 0 || extent.length() % unit != 0) return std::nullopt;
    if (!checked_add(extent.offset(), extent.length())) return std::nullopt;
    const auto sum = checked_add(total, extent.length());
    if (!sum) return std::nullopt;
    total = *sum;
  }
  return total;
}

bool ranks_differ(const std::vector<std::unique_ptr<journal::PartT>>& parts) {
  const auto by_rank = [](const auto& a, const auto& b) { return a->rank < b->rank; };
  // As servers write them: in order.
  if (std::ranges::adjacent_find(parts, [](const auto& a, const auto& b) { return a->rank >= b->rank; }) == parts.end())
    return true;
  std::vector<const journal::PartT*> sorted;
  sorted.reserve(parts.size());
  for (const auto& part : parts) sorted.push_back(part.get());
  std::ranges::sort(sorted, by_rank);
  return std::ranges::adjacent_find(sorted, [](const auto* a, const auto* b) { return a->rank == b->rank; }) ==
         sorted.end();
}

}  // namespace

bool is_stream_status(std::uint8_t value) noexcept {
  return value >= static_cast<std::uint8_t>(StreamStatus::waiting) &&
         value <= static_cast<std::uint8_t>(StreamStatus::failed);
}

Result<void> check_group(const journal::GroupFormedT& record) {
  if (record.incarnation == 0 || record.ranks == 0 || record.epoch == 0) {
    return fail(ErrorCode::corrupt, "a group of " + std::to_string(record.ranks) + " ranks has incarnation " +
                                        std::to_string(record.incarnation) + " and epoch " +
                                        std::to_string(record.epoch) + "; neither may be 0");
  }
  if (!record.openings.empty() && record.openings.size() != record.ranks) {
    return fail(ErrorCode::corrupt,
                std::to_string(record.openings.size()) + " Opens of " + std::to_string(record.ranks) + " ranks");
  }
  const bool processes_fit = record.processes.empty() || record.processes.size() == record.ranks;
  const auto too_long = [](const std::string& process) { return process.size() > process_bytes_max; };
  if (!processes_fit || std::ranges::any_of(record.processes, too_long)) {
    return fail(ErrorCode::corrupt,
                "the processes of a group of " + std::to_string(record.ranks) + " ranks make no sense");
  }
  if (record.ranks > ranks_max) {
    return fail(ErrorCode::corrupt, "a group of " + std::to_string(record.ranks) + " ranks, more than the " +
                                        std::to_string(ranks_max) + " that one can have");
  }
  return {};
}

Result<void> check_attribute_set(const journal::AttributeSetT& set, std::uint64_t newest_step) {
  const auto space = extents_bytes(set.extents, extent_unit_bytes);
  if (set.bytes == 0 || !space || *space < set.bytes || *space - set.bytes >= extent_unit_bytes)
    return fail(ErrorCode::corrupt, "an attribute set's space does not fit to its size");
  if (set.step > newest_step)
    return fail(ErrorCode::corrupt,
                "an attribute set comes from step " + std::to_string(set.step) + ", which is later");
  return {};
}

bool is_same_set(const journal::AttributeSetT& one, const journal::AttributeSetT& other) {
  const auto same_place = [](const journal::Extent& a, const journal::Extent& b) {
    return a.segment() == b.segment() && a.member() == b.member() && a.offset() == b.offset() &&
           a.length() == b.length();
  };
  return one.step == other.step && one.bytes == other.bytes && one.crc == other.crc &&
         std::ranges::equal(one.extents, other.extents, same_place);
}

Result<void> check_step(const journal::StepCommittedT& record) {
  if (record.step > step_number_max || record.epoch == 0) return bad_step(record, "number or epoch is out of range");
  for (const auto& part : record.parts) {
    const std::string rank = "rank " + std::to_string(part->rank);
    const auto metadata = extents_bytes(part->metadata, 1);
    if (!metadata || *metadata < part->metadata_bytes)
      return bad_step(record, rank + " has metadata, but no place for it");
    if (!extents_bytes(part->extents, extent_unit_bytes)) return bad_step(record, rank + " has an impossible extent");
    if (!part->attributes) continue;
    if (const auto checked = check_attribute_set(*part->attributes, record.step); !checked)
      return bad_step(record, rank + ": " + checked.error().what);
  }
  if (!ranks_differ(record.parts)) return bad_step(record, "two parts belong to one rank");
  return {};
}

Result<void> check_cursor(const journal::CursorMovedT& record, std::uint32_t epoch) {
  if (!is_valid_name(record.consumer))
    return fail(ErrorCode::corrupt, "a cursor has the invalid name \"" + record.consumer + "\"");
  if (record.epoch == 0 || record.epoch > epoch) {
    return fail(ErrorCode::corrupt, "the cursor of consumer " + record.consumer + " is in epoch " +
                                        std::to_string(record.epoch) + ", which the stream has not reached");
  }
  return {};
}

}  // namespace forebay::storage
