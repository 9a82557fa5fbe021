// SPDX-License-Identifier: Apache-2.0
// What the file of a journal tells of: by it is known, about, what rolling the journal would give back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "storage/journal.h"

namespace forebay::server {

class ToldSteps {
 public:
  /// A file with a checkpoint of that many bytes, which is about that many steps.
  void begin_file(std::size_t kept, std::uint64_t checkpoint_bytes) {
    // The records of a stream's steps are about alike; the checkpoint tells of other things as well.
    const std::uint64_t each = steps_ == 0 ? checkpoint_bytes : step_bytes_ / steps_;
    steps_ = kept;
    step_bytes_ = std::min(checkpoint_bytes, each * kept);
    spent_bytes_ = 0;
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
        spent_bytes_ += record_bytes;
    }
  }

  /// What the next file would not tell of when that many steps are kept.
  std::uint64_t gone_bytes(std::size_t kept) const {
    return spent_bytes_ + (kept < steps_ ? step_bytes_ / steps_ * (steps_ - kept) : 0);
  }

 private:
  std::size_t steps_ = 0;  ///< those that are kept, and those that are gone since the file began
  std::uint64_t step_bytes_ = 0;
  std::uint64_t spent_bytes_ = 0;  ///< of records that only changed what the next checkpoint says in a few bytes
};

}  // namespace forebay::server
