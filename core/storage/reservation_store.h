// SPDX-License-Identifier: Apache-2.0
// Reservations as they lie under ROOT/reservations and ROOT/quarantine: identity file, segments, streams' folders,
// files/. Creating and destroying is idempotent and survives a crash at any point.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <forebay/result.h>
#include <forebay/storage/reservation_generated.h>

#include "base/device.h"
#include "base/segment_layout.h"
#include "storage/tree_size.h"

namespace forebay::storage {

/// Layout chosen for a capacity: see docs/formats/reservation.md.
struct ReservationLayout {
  std::uint64_t capacity_bytes = 0;         ///< for streams, rounded up to the granularity
  std::uint64_t files_bytes = 0;            ///< for files/, rounded up as well
  std::uint64_t segment_bytes = 0;          ///< power of two, 1 MiB to 256 MiB, about a 32nd of the capacity
  std::vector<std::uint32_t> segments;      ///< of each member, the home first
  std::vector<std::uint64_t> member_bytes;  ///< of `capacity_bytes`, likewise
  std::uint64_t stripe_bytes = 0;           ///< larger blocks spread over all members
  std::uint64_t journal_reserve_bytes = 0;  ///< kept for journals, so that ends, drops and withdrawals always have room
};
inline constexpr std::uint64_t granularity_bytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t capacity_bytes_min = std::uint64_t{8} << 20;
/// invalid_argument for a capacity below capacity_bytes_min, unless it is 0 and there is one for files.
Result<ReservationLayout> layout_for(std::uint64_t capacity_bytes, std::uint64_t files_bytes = 0);

/// The same over several servers, which have these capacities for streams, the home first.
Result<ReservationLayout> layout_for(std::span<const std::uint64_t> member_bytes, std::uint64_t files_bytes);
inline constexpr std::size_t members_max = 1024;

/// What the reservation takes on one of its members: for streams and, on the home, for files.
std::uint64_t granted_bytes(const reservation::ReservationT& record, std::uint16_t member) noexcept;
/// Which of its members the server with this root is; nothing if it is none.
std::optional<std::uint16_t> member_of_root(const reservation::ReservationT& record, const std::string& uuid);

/// On which member each segment lies.
SegmentLayout layout_of(const reservation::ReservationT& record);

class ReservationStore {
 public:
  /// `root` exists; makes ROOT/reservations and ROOT/quarantine.
  static Result<std::unique_ptr<ReservationStore>> open(Device& device, std::string root);

  /// From now on files/ of new reservations with a capacity for files is an XFS image of that size, mounted by a loop
  /// device. The errors of check_files_images().
  Result<void> hold_files();
  bool holds_files() const noexcept { return holds_files_; }
  /// invalid_argument, with the reason, if files/ cannot have that capacity here.
  Result<void> check_files_capacity(std::uint64_t files_bytes) const;
  /// The reservation's files/ is an image, and its size is fixed.
  bool has_files_image(const std::string& id) const;
  /// The reservation's files/ is no image, or is mounted.
  bool has_its_files(const std::string& id) const;

  /// Makes a reservation whole: folder under a temporary name, segments with their space allocated (no_space undoes
  /// everything), identity file, sync, rename. `member`: which one this server is, and so whose segments. Succeeds if
  /// the same record is there already. Errors: invalid_argument, already_exists (the id, with another record),
  /// no_space, io_error.
  Result<void> create(const reservation::ReservationT& record, std::uint16_t member = 0);

  /// Writes the record of a reservation that exists anew. After a crash it is the old one or this.
  Result<void> replace_record(const reservation::ReservationT& record);

  /// Where others than the server's user own or share it: they may come to files/, if that lets them in.
  Result<void> let_others_pass(const reservation::ReservationT& record);

  /// Reads all reservations. Unfinished creations are removed. What is damaged or is no reservation is moved to
  /// quarantine, where it stays until somebody deletes it; what cannot be read just now (an I/O error, a newer version)
  /// stays in place. Both are named in `problems`, and the ids of the latter in `unread`.
  Result<std::vector<reservation::ReservationT>> load(std::vector<std::string>& problems,
                                                      std::vector<std::string>& unread);

  /// Moves the reservation to quarantine (that is the moment when it is gone) and syncs. Succeeds if it does not exist.
  Result<void> retire(const std::string& id);
  /// Makes it certain that nothing that retire() has moved comes back.
  Result<void> sync_removals();
  /// Whether its files are where they belong: not after retire(), though its syncs failed.
  bool is_in_place(const std::string& id) const;
  /// Deletes what was retired. Bounded: at most `entries_max` files and folders a call; true when nothing of it is
  /// left. What cannot be deleted keeps nothing else from going; the error comes when all else is gone, and names the
  /// first.
  Result<bool> purge_quarantine(std::size_t entries_max);

  std::string directory(const std::string& id) const;
  std::string segment_path(const std::string& id, std::uint32_t segment) const;
  std::string streams_directory(const std::string& id) const;
  std::string stream_directory(const std::string& id, const std::string& name) const;
  std::string files_directory(const std::string& id) const;

  /// Names of the streams' folders, sorted.
  Result<std::vector<std::string>> stream_names(const std::string& id) const;
  Result<void> make_stream_directory(const std::string& id, const std::string& name);
  /// Moves a stream's folder to quarantine and syncs. Succeeds if it does not exist.
  Result<void> retire_stream(const std::string& id, const std::string& name);

  /// Space that all regular files below files/ take on the device (a walk).
  Result<TreeSize> measure_files(const std::string& id) const;

 private:
  ReservationStore(Device& device, std::string root);

  std::string reservations_directory() const;
  std::string quarantine_directory() const;
  /// A name in quarantine that nothing has.
  static std::string quarantined_name(std::string_view prefix, std::string_view name);
  Result<void> move_to_quarantine(const std::string& from_directory, const std::string& name,
                                  const std::string& quarantined);
  /// Makes the image of files/ in folder `path` and mounts it.
  Result<void> make_image(const std::string& path, std::uint64_t bytes);
  /// Mounts the image of files/ in folder `path`, if there is one that is not mounted.
  Result<void> mount_image(const std::string& path);
  /// Unmounts the image of files/ in folder `path`, if there is one.
  Result<void> unmount_image(const std::string& path);
  /// Makes everything of the reservation in folder `path`, synced.
  Result<void> fill(const reservation::ReservationT& record, std::uint16_t member, const std::string& path);
  Result<void> write_record(const reservation::ReservationT& record, const std::string& path);
  Result<reservation::ReservationT> read_record(const std::string& id) const;
  /// The record, after a look at all that belongs to it.
  Result<reservation::ReservationT> read_whole_reservation(const std::string& id) const;

  Device& device_;
  std::string root_;
  bool holds_files_ = false;
};

/// True if no process can write to the file any more: no open descriptor for writing and no shared mapping made through
/// one, in forked children either. The caller's own descriptors count too: it probes when it has none for writing.
/// Probed by a read lease (fcntl F_SETLEASE), which asks that the caller owns the file. unsupported where the file
/// system has no leases.
Result<bool> nobody_writes(const std::string& path);

}  // namespace forebay::storage
