// SPDX-License-Identifier: Apache-2.0
// How much of a journal's file the next one would not repeat: an estimate of what rolling the journal frees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "storage/journal.h"

namespace forebay::server {

class JournalWaste {
 public:
  /// A new file, whose checkpoint of that many bytes describes that many steps.
  void begin_file(std::size_t steps_kept, std::uint64_t checkpoint_bytes) {
    // The records of a stream's steps are about alike; the checkpoint tells of other things as well.
    const std::uint64_t each = steps_ == 0 ? checkpoint_bytes : step_bytes_ / steps_;
    steps_ = steps_kept;
    step_bytes_ = std::min(checkpoint_bytes, each * steps_kept);
    superseded_bytes_ = 0;
  }

  void add(storage::RecordType type, std::uint64_t record_bytes) {
    switch (type) {
      case storage::RecordType::step_committed:
        ++steps_;
        step_bytes_ += record_bytes;
        break;
      case storage::RecordType::segments_owned:
      case storage::RecordType::steps_staged:
      case storage::RecordType::precious_set:
        // The next checkpoint says it, too.
        break;
      default:
        superseded_bytes_ += record_bytes;
    }
  }

  /// What the next file would leave out if that many steps are kept.
  std::uint64_t bytes(std::size_t steps_kept) const {
    return superseded_bytes_ + (steps_kept < steps_ ? step_bytes_ / steps_ * (steps_ - steps_kept) : 0);
  }

 private:
  std::size_t steps_ = 0;  ///< those that are kept, and those that are gone since the file began
  std::uint64_t step_bytes_ = 0;
  std::uint64_t superseded_bytes_ = 0;  ///< of records that only changed what the next checkpoint says in a few bytes
};

}  // namespace forebay::server
