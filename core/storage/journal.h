// SPDX-License-Identifier: Apache-2.0
// A stream's journal: framed records in files journal.N, each of which begins with a checkpoint of the whole state. What
// was appended survives the death of any process at once, and power loss after the next sync. See docs/formats/journal.md.
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

/// What opening found besides the records.
struct JournalRecovery {
  std::uint64_t records = 0;
  std::uint64_t bytes_cut = 0;     ///< length of a torn tail that was cut off
  bool damaged = false;            ///< whole records follow a broken one: not a torn tail but damage; those after it were not read
  std::string damage;              ///< where and what, for the user
};

/// append(), roll() and close by one thread; sync() may run in another at the same time.
class Journal {
 public:
  using Visitor = std::function<Result<void>(RecordType type, std::span<const std::byte> body)>;

  /// Makes journal.1 in `directory` (which exists) with a checkpoint, and syncs both.
  static Result<std::unique_ptr<Journal>> create(Device& device, std::string directory, std::span<const std::uint8_t> checkpoint);

  /// Reads the newest file that has a whole checkpoint, removes older ones and unfinished newer ones, cuts a torn tail.
  /// Where there is damage nothing is cut or removed; the caller decides what to do with the stream.
  static Result<std::unique_ptr<Journal>> open(Device& device, std::string directory, const Visitor& visit, JournalRecovery& recovery);

  ~Journal();

  /// Appends one record; visible to the next open() when it returns. After a failure the journal is broken: every later append fails.
  Result<void> append(RecordType type, std::span<const std::uint8_t> body);

  /// True once the file has grown by more than its checkpoint and a few MiB: time to roll().
  bool wants_checkpoint() const noexcept;
  /// Begins the next file with this checkpoint, syncs it, then removes the old one. On failure the old one stays in use.
  Result<void> roll(std::span<const std::uint8_t> checkpoint);

  /// All records appended before the call are on stable storage when it returns. A failure is final.
  Result<void> sync();

  std::uint64_t size_bytes() const noexcept;

 private:
  struct Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::storage
