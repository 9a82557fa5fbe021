// SPDX-License-Identifier: Apache-2.0
// What can be said about a journal's records by themselves: numbers, lengths and names that come from disk are checked
// here, before a stream's state takes them.
#pragma once

#include <cstdint>
#include <limits>

#include <forebay/reader.h>
#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

namespace forebay::storage {

/// The number after the last step must be one as well.
inline constexpr std::uint64_t step_number_max = std::numeric_limits<std::uint64_t>::max() - 1;
/// Offsets and lengths of extents are multiples of this.
inline constexpr std::uint64_t extent_unit_bytes = 4096;

/// Most ranks of a writer group. A server keeps a place for each from the moment that it recovers a stream.
inline constexpr std::uint32_t ranks_max = std::uint32_t{1} << 20;

/// Groups of more ranks do not note what their ranks called their Opens.
inline constexpr std::size_t openings_max = 4096;
/// Of what a node knows a rank's process by.
inline constexpr std::size_t process_bytes_max = 128;

/// Longest name of a run.
inline constexpr std::size_t run_bytes_max = 4096;
/// Longest id of a writer group or reader group.
inline constexpr std::size_t group_bytes_max = 4096;
/// Of what says where a number of ranks comes from.
inline constexpr std::size_t ranks_source_bytes_max = 1024;
/// Of the receipt of staged steps: each step of a checkpoint has it.
inline constexpr std::size_t receipt_bytes_max = 4096;

/// Is it one of forebay::StreamStatus?
bool is_stream_status(std::uint8_t value) noexcept;

/// Ranks, epoch and the enumerations that the group was formed with.
Result<void> check_group(const journal::GroupFormedT& record);

/// Space that fits to the set's size; a step that is not to come.
Result<void> check_attribute_set(const journal::AttributeSetT& set, std::uint64_t newest_step);

/// The same set, in the same place?
bool is_same_set(const journal::AttributeSetT& one, const journal::AttributeSetT& other);

/// One part of each of its ranks at most, metadata and extents with lengths that add up.
Result<void> check_step(const journal::StepCommittedT& record);

/// The consumer's name, and an epoch that is not to come.
Result<void> check_cursor(const journal::CursorMovedT& record, std::uint32_t epoch);

}  // namespace forebay::storage
