// SPDX-License-Identifier: Apache-2.0
// Parses and checks a reservation's identity file, which may come from a damaged disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <forebay/result.h>
#include <forebay/storage/reservation_generated.h>

namespace forebay::storage {

/// Type of the one record in the file. On disk: never renumber.
inline constexpr std::uint16_t reservation_record_type = 1;
inline bool has_shares(const reservation::ReservationT& record) {
  return !record.shares.empty() || record.access_generation > 0 || record.files_access_due;
}
inline constexpr std::uint64_t reservation_file_bytes_max = std::uint64_t{1} << 20;
/// More segments than that are not handled; 256 MiB each.
inline constexpr std::uint32_t segments_max = std::uint32_t{1} << 20;
/// As many entries fit into an access list of the common file systems, with some to spare.
inline constexpr std::size_t shares_max = 24;

/// invalid_argument if the record's layout, names or enumerations cannot be.
Result<void> check_reservation(const reservation::ReservationT& record);

/// The record in an identity file's bytes. corrupt, or unsupported if a newer version wrote it.
Result<reservation::ReservationT> decode_reservation(std::span<const std::byte> bytes);

}  // namespace forebay::storage
