// SPDX-License-Identifier: Apache-2.0
// A reservation's shares as the file system knows them, for files/: POSIX access lists where it has them, else mode
// bits for one group. See docs/design/sharing.md, "files/ is the kernel's".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <forebay/result.h>
#include <forebay/storage/reservation_generated.h>

namespace forebay::storage {

/// Group ids that name reservations in access lists. Nobody is in such a group.
struct GroupRange {
  std::uint32_t first = 2'000'000'000;
  std::uint32_t last = 2'147'483'646;

  /// "FIRST-LAST". invalid_argument if it is none, or has less than 1024 ids.
  static Result<GroupRange> parse(const std::string& text);
  /// The range as far as the user namespace of a process has these groups, of which `gid_map` is /proc/self/gid_map:
  /// this one, else the last 1024 ids of the largest part that it has. Nothing if it has fewer: nobody can be named
  /// there.
  static std::optional<GroupRange> usual_in(const std::string& gid_map);
};

/// What a walk over files/ did and what it left.
struct FilesAccessReport {
  std::uint64_t changed = 0;
  /// Not made in the reservation, nor its owner's: as they were.
  std::uint64_t untouched = 0;
  std::vector<std::string> untouched_places;  ///< the first three
  /// Could not be done, with all below them.
  std::uint64_t unfinished = 0;
  std::vector<std::string> unfinished_places;  ///< the first three, each with the reason
};

/// unsupported, with the reason, if the file system of `files` cannot express the record's shares. Changes nothing.
Result<void> check_files_access(const reservation::ReservationT& record, const std::string& files);

/// One pass over `files` and all below it, in slices. Opens nothing but folders, follows no link and enters no mount.
class FilesAccessPass {
 public:
  /// Has the lists say what the record's owner and shares say: all of what was made in the reservation, below its own
  /// mask; of what else belongs to the owner only what takes rights away. Repeating it changes nothing.
  static Result<std::unique_ptr<FilesAccessPass>> of_shares(const reservation::ReservationT& record,
                                                            const std::string& files);
  /// Has what belongs to the owner, at `path` below `files`, count as made in the reservation. Done with the owner's
  /// rights alone. Errors: invalid_argument (the path leads out of files/, or is of another's), not_found, unsupported
  /// (no access lists, or the server can act as nobody but itself).
  static Result<std::unique_ptr<FilesAccessPass>> of_adoption(const reservation::ReservationT& record,
                                                              const std::string& files, const std::string& path);
  ~FilesAccessPass();

  /// Looks at some `entries_max` entries. True if the pass is over.
  bool advance(std::size_t entries_max);
  const FilesAccessReport& report() const noexcept;

 private:
  struct Impl;
  explicit FilesAccessPass(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The lists of a `files` in which nothing lies yet. The first failure.
Result<void> set_files_access(const reservation::ReservationT& record, const std::string& files);

}  // namespace forebay::storage
