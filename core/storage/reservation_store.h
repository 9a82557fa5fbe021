// SPDX-License-Identifier: Apache-2.0
// Reservations as they lie under ROOT/reservations and ROOT/quarantine: identity file, segments, streams' folders, files/.
// Creating and destroying is idempotent and survives a crash at any point.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <forebay/result.h>
#include <forebay/storage/reservation_generated.h>

#include "base/device.h"

namespace forebay::storage {

/// Layout chosen for a capacity: see docs/formats/reservation.md.
struct ReservationLayout {
  std::uint64_t capacity_bytes = 0;          ///< rounded up to the granularity
  std::uint64_t segment_bytes = 0;           ///< power of two, 1 MiB to 256 MiB, about a 32nd of the capacity
  std::uint32_t segments = 0;
  std::uint64_t journal_reserve_bytes = 0;   ///< kept for journals, so that ends, drops and withdrawals always have room
};
inline constexpr std::uint64_t granularity_bytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t capacity_bytes_min = std::uint64_t{8} << 20;
/// invalid_argument below capacity_bytes_min.
Result<ReservationLayout> layout_for(std::uint64_t capacity_bytes);

class ReservationStore {
 public:
  /// `root` exists; makes ROOT/reservations and ROOT/quarantine.
  static Result<std::unique_ptr<ReservationStore>> open(Device& device, std::string root);

  /// Makes a reservation whole: folder under a temporary name, segments with their space allocated (no_space undoes
  /// everything), identity file, sync, rename. `record.members` has one member with the segments' number.
  Result<void> create(const reservation::ReservationT& record);

  /// Reads all reservations. Folders that are unfinished or cannot be read are moved to quarantine (unfinished creations are removed) and
  /// named in `problems`.
  Result<std::vector<reservation::ReservationT>> load(std::vector<std::string>& problems);

  /// Moves the reservation to quarantine (that is the moment when it is gone) and syncs. Succeeds if it does not exist.
  Result<void> retire(const std::string& id);
  /// Deletes what lies in quarantine. Bounded: at most `entries_max` files and folders a call; true when nothing is left.
  Result<bool> purge_quarantine(std::size_t entries_max);

  std::string directory(const std::string& id) const;
  std::string segment_path(const std::string& id, std::uint32_t segment) const;
  std::string streams_directory(const std::string& id) const;
  std::string stream_directory(const std::string& id, const std::string& name) const;
  std::string files_directory(const std::string& id) const;

  /// Names of the streams' folders.
  Result<std::vector<std::string>> stream_names(const std::string& id) const;
  Result<void> make_stream_directory(const std::string& id, const std::string& name);
  /// Moves a stream's folder to quarantine.
  Result<void> retire_stream(const std::string& id, const std::string& name);

  /// Bytes of all regular files below files/ (a walk).
  Result<std::uint64_t> files_bytes(const std::string& id) const;

 private:
  ReservationStore(Device& device, std::string root);
  Device& device_;
  std::string root_;
};

/// True if no process, this one's descriptors apart, can write to the file any more: no open descriptor for writing and no writable
/// shared mapping, in forked children either. Probed by a read lease (fcntl F_SETLEASE). unsupported where the file system has no leases.
Result<bool> nobody_writes(const std::string& path);

}  // namespace forebay::storage
