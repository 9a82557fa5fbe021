// SPDX-License-Identifier: Apache-2.0
// A stream's journal: takes its records, finds room for them, and begins anew with a checkpoint when that pays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "space/space_user.h"
#include "storage/journal.h"
#include "storage/stream_state.h"
#include "streams/journal_waste.h"

namespace forebay::server {

class ReservationSpace;

class StreamJournal final : public JournalInRoom {
 public:
  StreamJournal(ReservationSpace& space, const storage::StreamState& state, std::shared_ptr<storage::Journal> journal,
                const JournalWaste& waste);

  /// Appends a record; where there is no room for it, rolls what makes room. no_space and invalid_argument leave the
  /// journal as it was; after any other error nothing can be added.
  Result<void> append(storage::RecordType type, std::span<const std::uint8_t> body);
  Result<void> sync() { return journal_->sync(); }
  /// For a sync in a worker.
  std::shared_ptr<storage::Journal> shared() const noexcept { return journal_; }
  /// It has grown so long, or takes so much room for what is no more, that it should be rolled.
  bool should_roll() const;

  std::uint64_t size_bytes() const override { return journal_->size_bytes(); }
  std::uint64_t spare_bytes() const override { return journal_->spare_bytes(); }
  std::uint64_t step_record_bytes(std::size_t extents) const override;
  bool is_worth_rolling(bool for_itself) const override;
  bool shrinks_with_drops() const override;
  bool roll() override;

  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;

 private:
  /// What the next file would leave out, about.
  std::uint64_t wasted_bytes() const;
  /// Would rolling make it smaller by more than that? After it could not be done: by some more.
  bool rolling_frees(std::uint64_t bytes) const;

  ReservationSpace& space_;
  const storage::StreamState& state_;
  std::shared_ptr<storage::Journal> journal_;  ///< shared with a sync in the worker
  JournalWaste waste_;
  std::uint64_t roll_refused_below_ = 0;
};

}  // namespace forebay::server
