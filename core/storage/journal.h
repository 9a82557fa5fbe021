// SPDX-License-Identifier: Apache-2.0
// A stream's journal: framed records in files journal.N, each of which begins with a checkpoint of the whole state.
// What was appended survives the death of any process at once, and power loss after the next sync. See
// docs/formats/journal.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <forebay/result.h>
#include <forebay/storage/journal_generated.h>

#include "base/device.h"

namespace forebay::storage {

using journal::RecordType;

struct JournalOptions {
  /// wants_checkpoint() once the file has grown by this, and by the size of its checkpoint. Less where the reserve is
  /// small.
  std::uint64_t growth_bytes = std::uint64_t{4} << 20;
  /// For open(): the machine has not gone down since the journal was last written, so nothing that was appended can be
  /// lost. Then a broken record before whole ones is damage wherever it lies; else only if it had been synced, because
  /// power loss may take any of the pages that were not.
  bool same_boot = false;
  /// Asked before the journal takes `bytes` more of the device for records of this type (checkpoint: for the next
  /// file). False: it fails with no_space; but where `ahead` is true it needs a part of that only, and then asks for
  /// that. Must not use the journal. Empty: nobody limits it.
  std::function<bool(std::uint64_t bytes, RecordType type, bool ahead)> may_take = nullptr;
};

/// What opening found besides the records.
struct JournalRecovery {
  std::uint64_t records = 0;
  std::uint64_t bytes_cut = 0;  ///< length of a torn tail, which is not taken off yet
  std::uint64_t records_cut =
      0;  ///< whole records in the torn tail, behind a broken one: power loss took pages out of it
  bool damaged =
      false;           ///< whole records follow a broken one: not a torn tail but damage; those after it were not read
  std::string damage;  ///< where and what, for the user
};

/// append(), roll() and close by one thread; sync() may run in another at the same time. The Device outlives the
/// journal.
class Journal {
 public:
  using Visitor = std::function<Result<void>(RecordType type, std::span<const std::byte> body)>;

  /// Makes journal.1 in `directory` (which exists) with a checkpoint, and syncs both.
  static Result<std::unique_ptr<Journal>> create(Device& device, std::string directory,
                                                 std::span<const std::uint8_t> checkpoint,
                                                 const JournalOptions& options = {});

  /// Reads the newest file, removes older ones and unfinished newer ones. A torn tail stays until cut_tail(), append()
  /// or roll(), so that a caller who has to make up for it by a roll() may die before.
  /// Where there is damage nothing is removed or written from then on: append() and roll() fail. Errors: not_found (no
  /// journal), corrupt (no whole checkpoint, or what the visitor says), unsupported (written by a newer version),
  /// io_error. After an error everything lies as it was.
  static Result<std::unique_ptr<Journal>> open(Device& device, std::string directory, const Visitor& visit,
                                               JournalRecovery& recovery, const JournalOptions& options = {});

  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Appends one record; visible to the next open() when it returns. no_space leaves the journal as it was, so that an
  /// append may succeed once there is space; after any other failure the journal is broken: every later append, roll
  /// and sync fails.
  Result<void> append(RecordType type, std::span<const std::uint8_t> body);

  /// Takes a torn tail off, durably. A failure breaks the journal.
  Result<void> cut_tail();

  /// True once the file has grown by more than its checkpoint and JournalOptions::growth_bytes: time to roll(). After a
  /// roll that failed: once it has grown by growth_bytes more.
  bool wants_checkpoint() const noexcept;
  /// Begins the next file with this checkpoint, syncs it, then removes the old one. On failure the old one stays in
  /// use, unless it is not known which of the two a crash would leave: then the journal is broken. A file that is
  /// smaller than the old one may always be taken.
  Result<void> roll(std::span<const std::uint8_t> checkpoint);

  /// All records appended before the call are on stable storage when it returns. A failure is final: the journal is
  /// broken.
  Result<void> sync();

  /// Space that the journal takes on the device, preallocated room included.
  std::uint64_t size_bytes() const noexcept;
  /// Room for records of any type that it has without taking more.
  std::uint64_t spare_bytes() const noexcept;

 private:
  struct Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::storage
